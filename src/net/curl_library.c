/* libcurl, loaded when a process first calls it: it brings 25 libraries, half the time that a start
 * of the program takes, and what lies elsewhere alone needs it. What we call of it is defined here,
 * for this library alone; curl_global_init fails where libcurl is missing, and curl_version_info
 * gives NULL. Nothing else is called then. */
#include "net/curl_library.h"

#include <lockstep/net.h>

#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>

static void *library;

static void library_load(void)
{
    static const char *const names[] = {"libcurl-gnutls.so.4", "libcurl.so.4"};
    for (size_t i = 0; i < sizeof names / sizeof *names && !library; i++)
        library = dlopen(names[i], RTLD_LAZY | RTLD_LOCAL);
}

static void *find(const char *name)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, library_load);
    return library ? dlsym(library, name) : NULL;
}

#define REAL(name) ((__typeof__(&(name)))find(#name))
#define HIDDEN     __attribute__((visibility("hidden")))

HIDDEN CURLcode curl_global_init(long flags)
{
    return find("curl_global_init") ? REAL(curl_global_init)(flags) : CURLE_FAILED_INIT;
}

HIDDEN curl_version_info_data *curl_version_info(CURLversion version)
{
    return find("curl_version_info") ? REAL(curl_version_info)(version) : NULL;
}

bool ls_net_library(char *text, size_t bytes)
{
    const curl_version_info_data *curl = curl_version_info(CURLVERSION_NOW);
    if (curl)
        snprintf(text, bytes, "%s, %s", curl->version,
                 curl->ssl_version ? curl->ssl_version : "without TLS");
    return curl;
}

/* A function that passes its arguments on. Its name is a macro, so REAL would not find it here. */
#define FORWARD(type, name, parameters, ...)                                                       \
    HIDDEN type name parameters                                                                    \
    {                                                                                              \
        return ((__typeof__(&(name)))find(#name))(__VA_ARGS__);                                    \
    }
FORWARD(void, curl_global_cleanup, (void))
FORWARD(CURL *, curl_easy_init, (void))
FORWARD(void, curl_easy_cleanup, (CURL * curl), curl)
FORWARD(void, curl_easy_reset, (CURL * curl), curl)
FORWARD(CURLcode, curl_easy_perform, (CURL * curl), curl)
FORWARD(const char *, curl_easy_strerror, (CURLcode code), code)
FORWARD(struct curl_slist *, curl_slist_append, (struct curl_slist * list, const char *line), list,
        line)
FORWARD(void, curl_slist_free_all, (struct curl_slist * list), list)

/* Each argument behind the option is one word: a pointer, a long or a curl_off_t. */
HIDDEN CURLcode curl_easy_setopt(CURL *curl, CURLoption option, ...)
{
    va_list rest;
    va_start(rest, option);
    void *word = va_arg(rest, void *);
    va_end(rest);
    return REAL(curl_easy_setopt)(curl, option, word);
}

HIDDEN CURLcode curl_easy_getinfo(CURL *curl, CURLINFO info, ...)
{
    va_list rest;
    va_start(rest, info);
    void *value = va_arg(rest, void *);
    va_end(rest);
    return REAL(curl_easy_getinfo)(curl, info, value);
}
