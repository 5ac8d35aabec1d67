/* Functions that the linker puts a test's own in place of (Makefile, "wrap"). */
#ifndef TEST_SUPPORT_WRAPPED_H
#define TEST_SUPPORT_WRAPPED_H

/* Declares both: __real_NAME is the function itself, __wrap_NAME is called for it. */
#define WRAPPED(name) extern __typeof__(name) __real_##name, __wrap_##name

#endif
