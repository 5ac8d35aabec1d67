/* lockstep/net.h - requests to web servers and to S3, each tried as often as it is worth.
 *
 *   struct ls_server *server;
 *   ls_server_open(&server, "s3://bucket/runs/demo", NULL, error)     or http://, https://
 *   struct ls_http_request get = {.method = "GET", .key = "runs/demo/file", .range_first = 0,
 *                            .range_bytes = 1 << 20, .limit = 1 << 20};
 *   ls_http_send(server, &get, error)                                   get.text[get.bytes]
 *   ls_http_request_release(&get), ls_server_close(server)
 *
 * Server errors (5xx, 429), failures of the network and answers that are not what was asked for are
 * tried again after growing pauses; other refusals are not. Errors name method, URL and reason, and
 * never a secret.
 *
 * S3, or whatever speaks it: requests are signed by SigV4, each with the SHA-256 of its body, which
 * the server verifies. The environment is that of AWS's tools: AWS_ACCESS_KEY_ID,
 * AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, otherwise the profile AWS_PROFILE (else default) of
 * AWS_SHARED_CREDENTIALS_FILE (else ~/.aws/credentials); AWS_REGION or AWS_DEFAULT_REGION (else
 * us-east-1), AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL. With an endpoint the bucket is the first
 * name of the path, otherwise it is in the host's name.
 *
 * The web: redirects are followed, from https to https alone. A server that asks for a password
 * gets what ~/.netrc (or the file NETRC) has for its host. A URL with a password or with "?" in it
 * is refused: configurations and records would keep it.
 *
 * https: servers are trusted by the certificates of the system, and by those of the file that
 * CURL_CA_BUNDLE or SSL_CERT_FILE names (for S3 AWS_CA_BUNDLE before them).
 *
 * Everything here is Local. One thread at a time uses a server. */
#ifndef LOCKSTEP_NET_H
#define LOCKSTEP_NET_H

#include <lockstep/base.h>

LS_C_BEGIN

/* 0 stands for the default. */
struct ls_net_options {
    int tries;        /* of a request: 6 */
    double pause_s;   /* after the first try, doubled after each up to 30: 0.5 */
    double patient_s; /* that a server may be silent over a patient request: 300 */
    double slow_s;    /* seconds in which a request must move 1 KiB/s, or connect, at least 1: 30 */
    /* Asked often: true ends what goes on, with LS_ESTOPPED. NULL: never. */
    bool (*ends)(void *user);
    void *user;
};
static inline bool ls_net_ends(const struct ls_net_options *options)
{
    return options->ends && options->ends(options->user);
}

/* Whether a name is a scheme and "://" and more (RFC 3986, 3.1): also of schemes that nothing here
 * can read, so that they are refused and not looked for on a disk. */
bool ls_url_is(const char *name);
/* One spelling: the scheme in small letters, HTTP:// is http:// (RFC 3986, 6.2.2.1), and one slash
 * where several stand behind the host or at the end, which name nothing else here. */
void ls_url_normalize(char *url);
/* LS_ECONFIG, with what is wrong, for a URL that ls_server_open would refuse by its look: of
 * schemes http, https and s3 are taken, in any case. The text holds none of its secrets. */
int ls_url_check(const char *url, struct ls_error *error);

/* A bucket or a web server, and who asks. */
struct ls_server;
/* Opens the server of a URL; nothing is sent. LS_ECONFIG: the URL is malformed, or credentials are
 * missing or cannot be read. LS_ENOTSUP: there is no libcurl. options may be NULL. */
int ls_server_open(struct ls_server **out, const char *url, const struct ls_net_options *options,
                   struct ls_error *error);
/* server may be NULL. */
void ls_server_close(struct ls_server *server);
/* Of the bucket, or scheme and host: what keys are below. Without a slash at its end. */
const char *ls_server_url(const struct ls_server *server);
/* The key that the URL names, "" for none: what follows bucket or host, without slashes around. */
const char *ls_server_key(const struct ls_server *server);

/* The answer's body is text[bytes], terminated, until the next request into the same struct; it is
 * freed by ls_http_request_release. Pointers are borrowed; NULL is "". */
struct ls_http_request {
    const char *method; /* "GET", "PUT", "POST", "DELETE", "HEAD" */
    const char *key;    /* of the object, "" for the bucket */
    const char *query;  /* "a=1&b=2": sorted by name, values escaped; "" for none */
    const void *body;   /* of PUT and POST */
    size_t body_bytes;
    uint64_t range_first, range_bytes; /* of GET; 0 bytes: all. Then so many come, or it fails */
    size_t limit;                      /* of an answer of success, in bytes */
    bool patient;                      /* the server may work long before it answers */
    bool absent_is_fine;               /* 404 is success: code says so */
    int tries;                         /* it took */
    long code;                         /* of HTTP, in the last answer */
    bool ended;                        /* its headers did */
    char etag[128], modified[64];      /* ETag and Last-Modified, "" for none */
    uint64_t length;                   /* Content-Length of a HEAD, 0 if it has none */
    bool has_length;
    uint64_t whole; /* of an answer to a range: bytes of the object, 0: unknown */
    char *text;
    size_t bytes;
    const char *wrong; /* in a sound answer that is not what was asked for; NULL: nothing */
};
/* LS_EIO: what was refused, by whom and why. LS_ESTOPPED: options.ends said so. */
int ls_http_send(struct ls_server *server, struct ls_http_request *request, struct ls_error *error);
void ls_http_request_release(struct ls_http_request *request);

/* Bytes of an object's key with its end, escaped as a list has it: S3 allows 1024 of the key. */
enum { LS_OBJECT_KEY_BYTES = 3072 };
/* Not LS_OK: ends the list with it. */
typedef int ls_object_visitor(void *user, const char *key, uint64_t bytes, struct ls_error *error);
/* Visits the objects of a bucket whose keys begin with prefix, by ListObjectsV2, in the order in
 * which the server has them. flat: only those that have no slash behind prefix. LS_EIO also for an
 * answer that is no list, and for one that does not end. */
int ls_bucket_list(struct ls_server *server, const char *prefix, bool flat,
                   ls_object_visitor *visit, void *user, struct ls_error *error);

/* out = text with all but letters, digits and -._~ as %XX; false if that does not fit. */
bool ls_url_escape(const char *text, char *out, size_t bytes);
/* value = the text of the first <name> at or behind xml, entities resolved; returns where the
 * element ends, NULL if there is none, or none that fits. */
const char *ls_xml_element(const char *xml, const char *name, char *value, size_t bytes);

/* Key, secret and session token of an S3 user. */
struct ls_credentials {
    char key[256], secret[256], token[4096];
};
/* Those of a profile in text[bytes] of a credentials file: sections [name] of lines name = value.
 * False if there is no such profile, or it lacks key or secret, or one is too long. */
bool ls_credentials_parse(const char *text, size_t bytes, const char *profile,
                          struct ls_credentials *out);

/* "7.88.1, GnuTLS/3.7.9": of the libcurl that requests use; false: it cannot be loaded. */
bool ls_net_library(char *text, size_t bytes);

LS_C_END
#endif
