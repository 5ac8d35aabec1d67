/* Files of multiple choice: what is read, and each way in which one may be damaged. */
#include <lockstep/data.h>

#include <stdlib.h>
#include <string.h>

#include "../support/suite.h"

enum { HEADER = 1024, WORDS_MAX = 200 };

struct file {
    uint32_t header[256];
    uint16_t words[WORDS_MAX];
    int count;
};

static void words_add(struct file *file, const uint16_t *words, int count)
{
    memcpy(file->words + file->count, words, (size_t)count * sizeof *words);
    file->count += count;
}

/* Two examples: {7 8 | 9} {7 8 | 10 11}, label 1; and three endings behind one token, label 0. */
static struct file file_make(void)
{
    struct file file = {.header = {20240522, 1, 2, 28}};
    static const uint16_t first[] = {65535, 26, 0, 1, 2, 2, 7, 8, 1, 9, 2, 10, 11};
    static const uint16_t second[] = {65535, 26, 1, 0, 3, 1, 50256, 1, 1, 1, 2, 1, 3};
    words_add(&file, first, 13);
    words_add(&file, second, 13);
    return file;
}

static int parse(const struct file *file, size_t cut, struct ls_choices *out,
                 struct ls_error *error)
{
    size_t bytes = HEADER + 2 * (size_t)file->count - cut;
    unsigned char *copy = malloc(bytes); /* so that a reader past its end is seen */
    memcpy(copy, file->header, bytes < HEADER ? bytes : HEADER);
    if (bytes > HEADER)
        memcpy(copy + HEADER, file->words, bytes - HEADER);
    int status = ls_choices_parse("x.bin", copy, bytes, out, error);
    free(copy);
    return status;
}

CASE(test_examples_are_read)
{
    struct file file = file_make();
    struct ls_choices choices;
    struct ls_error error = {0};
    static const int32_t want[][4] = {
        {7, 8, 9}, {7, 8, 10, 11}, {50256, 1}, {50256, 2}, {50256, 3}};
    static const int64_t counts[] = {3, 4, 2, 2, 2}, firsts[] = {2, 2, 1, 1, 1};
    assert_int_equal(parse(&file, 0, &choices, &error), LS_OK);
    assert_int_equal(choices.count, 2);
    assert_int_equal(choices.texts_count, 5);
    assert_int_equal(choices.list[0].endings, 2);
    assert_int_equal(choices.list[0].label, 1);
    assert_int_equal(choices.list[1].text, 2);
    assert_int_equal(choices.list[1].endings, 3);
    assert_int_equal(choices.list[1].label, 0);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(choices.texts[i].count, counts[i]);
        assert_int_equal(choices.texts[i].first, firsts[i]);
        assert_memory_equal(choices.texts[i].ids, want[i], (size_t)counts[i] * 4);
    }
    ls_choices_release(&choices);
}

CASE(test_damage_is_named)
{
    static const struct {
        int word; /* of the file behind the header; below 0: of the header */
        uint32_t value;
        const char *words;
    } cases[] = {
        {-256, 20240520, "begins with 20240520"},
        {-255, 2, "version 2"},
        {-254, 0, "promises no examples"},
        {-254, 3, "ends in example 2 of the 3"},
        {-254, 1, "26 bytes after its 1 examples"},
        {0, 65534, "example 0: the first word is 65534: expected 65535"},
        {1, 27, "example 0: its size in bytes is 27"},
        {1, 8, "example 0: its size in bytes is 8"},
        {1, 60000, "example 0: its size in bytes is 60000"},
        {1, 24, "example 0: a context's or an ending's number of tokens is 2"},
        {1, 28, "example 0: its size in 2-byte words is 14"},
        {2, 5, "example 0: its number is 5"},
        {3, 2, "example 0: the label is 2"},
        {4, 1, "example 0: the number of endings is 1"},
        {4, 3, "example 0: its size in 2-byte words is 13"},
        {5, 0, "example 0: a context's or an ending's number of tokens is 0"},
        {5, 65535, "example 0: a context's or an ending's number of tokens is 65535"},
        {13 + 7, 0, "example 1: a context's or an ending's number of tokens is 0"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct file file = file_make();
        struct ls_choices choices;
        struct ls_error error = {0};
        if (cases[i].word < 0)
            file.header[256 + cases[i].word] = cases[i].value;
        else
            file.words[cases[i].word] = (uint16_t)cases[i].value;
        int status = parse(&file, 0, &choices, &error);
        if (status != LS_EDATA || !strstr(error.text, cases[i].words))
            fail_msg("case %zu: %d \"%s\", expected \"%s\"", i, status, error.text, cases[i].words);
    }
}

/* However much of its end is missing. */
CASE(test_a_file_that_is_cut_off_is_refused)
{
    struct file file = file_make();
    for (size_t cut = 1; cut <= HEADER + 2 * (size_t)file.count; cut++) {
        struct ls_choices choices;
        struct ls_error error = {0};
        assert_int_equal(parse(&file, cut, &choices, &error), LS_EDATA);
        assert_null(choices.list);
    }
}

SUITE_MAIN(NULL, NULL)
