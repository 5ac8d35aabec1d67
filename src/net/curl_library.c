/* libcurl, loaded when a process first calls it: it brings 25 libraries, half the time that a start
 * of the program takes, and what lies elsewhere alone needs it. What we call of it is defined here,
 * for this library alone; curl_global_init fails where libcurl is missing, and curl_version_info
 * gives NULL. Nothing else is called then. */
#include "net/curl_library.h"

#include <lockstep/base/lazy_library.h>
#include <lockstep/net.h>

#include <stdarg.h>
#include <stdio.h>

static struct ls_lazy_library library = {.names = {"libcurl-gnutls.so.4", "libcurl.so.4"}};

LS_LAZY_HIDDEN CURLcode curl_global_init(long flags)
{
    return ls_lazy_symbol(&library, "curl_global_init")
               ? LS_LAZY_REAL(&library, curl_global_init)(flags)
               : CURLE_FAILED_INIT;
}

LS_LAZY_HIDDEN curl_version_info_data *curl_version_info(CURLversion version)
{
    return ls_lazy_symbol(&library, "curl_version_info")
               ? LS_LAZY_REAL(&library, curl_version_info)(version)
               : NULL;
}

bool ls_net_library(char *text, size_t bytes)
{
    const curl_version_info_data *curl = curl_version_info(CURLVERSION_NOW);
    if (curl)
        snprintf(text, bytes, "%s, %s", curl->version,
                 curl->ssl_version ? curl->ssl_version : "without TLS");
    return curl;
}

LS_LAZY_FORWARD(&library, void, curl_global_cleanup, (void))
LS_LAZY_FORWARD(&library, CURL *, curl_easy_init, (void))
LS_LAZY_FORWARD(&library, void, curl_easy_cleanup, (CURL * curl), curl)
LS_LAZY_FORWARD(&library, void, curl_easy_reset, (CURL * curl), curl)
LS_LAZY_FORWARD(&library, CURLcode, curl_easy_perform, (CURL * curl), curl)
LS_LAZY_FORWARD(&library, const char *, curl_easy_strerror, (CURLcode code), code)
LS_LAZY_FORWARD(&library, struct curl_slist *, curl_slist_append,
                (struct curl_slist * list, const char *line), list, line)
LS_LAZY_FORWARD(&library, void, curl_slist_free_all, (struct curl_slist * list), list)

/* Each argument behind the option is one word: a pointer, a long or a curl_off_t. */
LS_LAZY_HIDDEN CURLcode curl_easy_setopt(CURL *curl, CURLoption option, ...)
{
    va_list rest;
    va_start(rest, option);
    void *word = va_arg(rest, void *);
    va_end(rest);
    return LS_LAZY_REAL(&library, curl_easy_setopt)(curl, option, word);
}

LS_LAZY_HIDDEN CURLcode curl_easy_getinfo(CURL *curl, CURLINFO info, ...)
{
    va_list rest;
    va_start(rest, info);
    void *value = va_arg(rest, void *);
    va_end(rest);
    return LS_LAZY_REAL(&library, curl_easy_getinfo)(curl, info, value);
}
