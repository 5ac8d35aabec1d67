/* libcurl by names of our own: a program that is linked with liblockstep.a and with libcurl itself
 * keeps its own functions. For curl.h, in its place. */
#ifndef NET_CURL_LIBRARY_H
#define NET_CURL_LIBRARY_H

#define curl_global_init    lockstep_curl_global_init
#define curl_global_cleanup lockstep_curl_global_cleanup
#define curl_version_info   lockstep_curl_version_info
#define curl_easy_init      lockstep_curl_easy_init
#define curl_easy_cleanup   lockstep_curl_easy_cleanup
#define curl_easy_reset     lockstep_curl_easy_reset
#define curl_easy_setopt    lockstep_curl_easy_setopt
#define curl_easy_getinfo   lockstep_curl_easy_getinfo
#define curl_easy_perform   lockstep_curl_easy_perform
#define curl_easy_strerror  lockstep_curl_easy_strerror
#define curl_slist_append   lockstep_curl_slist_append
#define curl_slist_free_all lockstep_curl_slist_free_all
#define CURL_DISABLE_TYPECHECK
#include <curl/curl.h>
/* It has made macros of these two. */
#undef curl_easy_setopt
#undef curl_easy_getinfo
#define curl_easy_setopt  lockstep_curl_easy_setopt
#define curl_easy_getinfo lockstep_curl_easy_getinfo

#endif
