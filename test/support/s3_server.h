/* A small S3 on the loopback, for tests: objects and uploads in memory, in one bucket, "bucket". It
 * checks each request's signature by itself, and the SHA-256 of its body; lists have two keys a
 * page. The same objects can be read without a signature below /web/: a web server. It can be told
 * to fail. One thread serves one request after the other; a stall holds up its own client alone. */
#ifndef TEST_SUPPORT_S3_SERVER_H
#define TEST_SUPPORT_S3_SERVER_H

#include <stdbool.h>
#include <stddef.h>

struct s3_server;
/* Starts it, and names it and its credentials in the environment. */
struct s3_server *s3_server_start(void);
void s3_server_stop(struct s3_server *server);

enum s3_failure {
    S3_SOUND,
    S3_BUSY,   /* 503, and nothing is done */
    S3_DROP,   /* the connection ends before the body is read */
    S3_CUT,    /* it is done, and the answer ends in its middle */
    S3_STALL,  /* no answer until the client hangs up */
    S3_REFUSE, /* 403 */
    S3_REGION, /* 301: the bucket is in eu-west-9 */
    S3_LIE,    /* an object is given out with one byte changed */
    S3_WHOLE,  /* 200 and the whole object, where a range was asked for */
    S3_SHIFT,  /* 206 and another range */
    S3_SHORT,  /* 206 and half of the range, and its length is that of the half */
    S3_BARE,   /* a HEAD is answered without a Content-Length */
    S3_PLAIN,  /* an answer has no ETag, and no date */
    S3_MOVED,  /* 307 to where the object is */
    S3_ROUND,  /* 307 to itself */
};
/* Of the requests from now on the n-th (from 1) fails, or all from there. */
void s3_server_fail(struct s3_server *server, enum s3_failure how, int n, bool all);
/* Requests since then. */
int s3_server_requests(struct s3_server *server);
/* Signatures that were wrong, and requests that it does not know. */
int s3_server_faults(struct s3_server *server);
/* Uploads in parts that are neither complete nor aborted. */
int s3_server_uploads(struct s3_server *server);
/* Objects whose keys begin so. */
int s3_server_objects(struct s3_server *server, const char *prefix);
/* How often, after a request, a manifest.json was there with fewer than so many objects beside it.
 */
int s3_server_torn(struct s3_server *server);
void s3_server_expect_beside(struct s3_server *server, int objects);
/* Puts an object there, past all requests. */
void s3_server_place(struct s3_server *server, const char *key, const char *text);
void s3_server_place_bytes(struct s3_server *server, const char *key, const void *data,
                           size_t bytes);
/* From now on lists of objects are answered by these texts in turn; NULL: by lists. Borrowed. */
void s3_server_answer_lists(struct s3_server *server, const char *const *texts, int count);
void s3_server_remove(struct s3_server *server, const char *key);
/* Ranges of the object that were given out since it was placed; and the bytes of all ranges. */
int s3_server_ranges(struct s3_server *server, const char *key);
size_t s3_server_range_bytes(struct s3_server *server);
/* From now on the web below /web/ asks for this user and password; "" for nobody's. */
void s3_server_expect_password(struct s3_server *server, const char *base64);
/* "http://127.0.0.1:PORT/web/NAME"; lives until the fourth call after. */
const char *s3_server_url(struct s3_server *server, const char *name);
/* How many clients wait for an answer that does not come. */
int s3_server_stalled(struct s3_server *server);

#endif
