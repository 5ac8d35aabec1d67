/* Loops that are compiled for wider vectors too, of which one is chosen when the program is loaded:
 * by what the machine has, whoever made it. For loops whose results do not depend on the width. */
#ifndef BASE_WIDER_H
#define BASE_WIDER_H

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) &&                             \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define WIDER __attribute__((target_clones("default", "avx2", "arch=x86-64-v4")))
#else
#define WIDER
#endif

#endif
