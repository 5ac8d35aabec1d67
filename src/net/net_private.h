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
    struct ls_credentials who;
    char netrc[4096]; /* the file, "" for the usual one */
    struct ls_net_options options;
};

#endif
