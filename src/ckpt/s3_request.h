/* One request to S3, tried as often as it is worth. */
#ifndef CKPT_S3_REQUEST_H
#define CKPT_S3_REQUEST_H

#include "ckpt/s3_library.h"

#include <lockstep/ckpt/place.h>

/* A bucket, and who asks. */
struct s3 {
    CURL *curl;
    char url[1024];    /* of the bucket, without a slash at its end */
    char prefix[1024]; /* of keys: "", or with a slash at its end */
    char signer[128];  /* CURLOPT_AWS_SIGV4 */
    char key[256], secret[256], token[4096];
    const struct ls_place_options *options;
};
/* The answer's body is text[bytes], terminated, until the next request into the same struct; it
 * is freed by s3_request_release. */
struct s3_request {
    const char *method; /* "GET", "PUT", "POST", "DELETE", "HEAD" */
    const char *key;    /* of the object, "" for the bucket */
    const char *query;  /* "a=1&b=2": sorted by name, values escaped; "" for none */
    const void *body;   /* of PUT and POST */
    size_t body_bytes;
    uint64_t range_first, range_bytes; /* of GET; 0 bytes: all */
    size_t limit;                      /* of an answer of success, in bytes */
    bool patient;                      /* the server may work long before it answers */
    bool absent_is_fine;               /* 404 is success: code says so */
    int tries;                         /* it took */
    long code;                         /* of HTTP, in the last answer */
    bool ended;                        /* its headers did */
    char etag[128];
    uint64_t length; /* Content-Length of a HEAD */
    char *text;
    size_t bytes;
};
/* LS_EIO: what was refused, by whom and why. */
int s3_request(struct s3 *s3, struct s3_request *request, struct ls_error *error);
void s3_request_release(struct s3_request *request);

/* value = the text of the first <name> at or behind xml, entities resolved; returns where the
 * element ends, NULL if there is none, or none that fits. */
const char *s3_element(const char *xml, const char *name, char *value, size_t bytes);

#endif
