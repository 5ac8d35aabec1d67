/* Shared libraries that are loaded when they are first called. */
#include <lockstep/base/lazy_library.h>

#include <dlfcn.h>
#include <pthread.h>

void *ls_lazy_symbol(struct ls_lazy_library *library, const char *name)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < LS_LAZY_NAMES && !library->tried && !library->handle; i++)
        if (library->names[i])
            library->handle = dlopen(library->names[i], RTLD_LAZY | RTLD_LOCAL);
    library->tried = true;
    pthread_mutex_unlock(&lock);
    return library->handle ? dlsym(library->handle, name) : NULL;
}
