/* lockstep/base/lazy_library.h - a shared library that is loaded when a process first calls it.
 *
 *   static struct ls_lazy_library library = {.names = {"libcurl.so.4"}};
 *   LS_LAZY_FORWARD(&library, CURL *, curl_easy_init, (void))
 *
 * defines curl_easy_init for this library alone; it calls the function of that name in libcurl.
 * Call it only if ls_lazy_symbol has found something: a function that is missing would be called at
 * NULL. Everything here is Local, from any thread. */
#ifndef LOCKSTEP_BASE_LAZY_LIBRARY_H
#define LOCKSTEP_BASE_LAZY_LIBRARY_H

#include <lockstep/base/linkage.h>

#include <stdbool.h>

LS_C_BEGIN

enum { LS_LAZY_NAMES = 2 };

struct ls_lazy_library {
    const char *names[LS_LAZY_NAMES]; /* the first that can be loaded is taken; NULL: none */
    bool tried;
    void *handle;
};

/* The address of what is called so, or NULL if the library or the name is missing. */
void *ls_lazy_symbol(struct ls_lazy_library *library, const char *name);

#define LS_LAZY_HIDDEN __attribute__((visibility("hidden")))
/* Both ask the library for `name` as it stands in the source, although it may be a macro. */
#define LS_LAZY_REAL(library, name) ((__typeof__(&(name)))ls_lazy_symbol(library, #name))
#define LS_LAZY_FORWARD(library, type, name, parameters, ...)                                      \
    LS_LAZY_HIDDEN type name parameters                                                            \
    {                                                                                              \
        return ((__typeof__(&(name)))ls_lazy_symbol(library, #name))(__VA_ARGS__);                 \
    }

LS_C_END
#endif
