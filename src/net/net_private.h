/* What the files of src/net share. */
#ifndef NET_NET_PRIVATE_H
#define NET_NET_PRIVATE_H

#include "net/curl_library.h"

#include <lockstep/net.h>

struct ls_server {
    CURL *curl;
    char url[1024];   /* of the bucket or host, without a slash at its end */
    char key[2048];   /* that the URL names */
    bool is_signed;   /* S3 */
    char signer[128]; /* CURLOPT_AWS_SIGV4 */
    char region[64];  /* that the bucket is in, as the last answer has it; "" if it does not */
    struct ls_credentials who;
    char netrc[4096];       /* the file, "" for the usual one */
    char authorities[4096]; /* a file of certificates, "" for the system's alone */
    struct ls_net_options options;
};

/* Takes the credentials that are there now; false: the server has the same ones. */
bool net_credentials_renew(struct ls_server *server);

/* A page of a bucket's list, from which its objects are taken one by one. The functions return
 * NULL, or what is wrong with it. */
struct net_page {
    const char *prefix; /* that all keys begin with; borrowed */
    bool escaped;       /* the keys are */
    char *at;           /* in the text */
    char next[2048];    /* the token of the page behind it, "" for none */
};
struct net_object {
    char key[LS_OBJECT_KEY_BYTES];
    uint64_t bytes;
};
/* text[bytes] is terminated, borrowed and written to. */
const char *net_page_open(struct net_page *page, char *text, size_t bytes, const char *prefix);
/* *there false: there is none left. */
const char *net_page_next(struct net_page *page, struct net_object *object, bool *there);

#endif
