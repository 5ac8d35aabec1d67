/* A small good vocab.json for the fuzzers: the 256 bytes, all pairs and triples of a, b and c, and
 * the special token. */
#ifndef TEST_DATA_FUZZ_VOCABULARY_H
#define TEST_DATA_FUZZ_VOCABULARY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum { VOCABULARY_BYTES_MAX = 8192 };

static inline size_t make_vocabulary(char out[VOCABULARY_BYTES_MAX])
{
    char *at = out;
    int id = 0, next = 256;
    at += sprintf(at, "{");
    for (int byte = 0; byte < 256; byte++) {
        bool itself = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
        at += sprintf(at, "\"\\u%04x\":%d,", itself ? byte : next++, id++);
    }
    for (int i = 0; i < 9; i++)
        at += sprintf(at, "\"%c%c\":%d,", 'a' + i / 3, 'a' + i % 3, id++);
    for (int i = 0; i < 27; i++)
        at += sprintf(at, "\"%c%c%c\":%d,", 'a' + i / 9, 'a' + i / 3 % 3, 'a' + i % 3, id++);
    at += sprintf(at, "\"<|endoftext|>\":%d}", id);
    return (size_t)(at - out);
}

#endif
