/* Texts that name workers, and RUN/members, whose damage is named (lockstep/train/members.h). */
#include "../support/scratch.h"
#include "../support/suite.h"

#include <lockstep/train/members.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

CASE(test_each_set_of_workers_is_what_its_text_says)
{
    for (int workers = 1; workers <= 6; workers++)
        for (int mask = 1; mask < 1 << workers; mask++) {
            bool in[6], again[6];
            char text[64];
            for (int i = 0; i < workers; i++)
                in[i] = mask >> i & 1;
            ls_members_text(in, workers, text, sizeof text);
            if (!ls_members_parse(text, workers, again) || memcmp(in, again, (size_t)workers))
                fail_msg("%d workers, mask %x: \"%s\" says something else", workers, mask, text);
            /* With the largest worker gone, a text that names it says nothing. */
            if (mask >> (workers - 1) && ls_members_parse(text, workers - 1, again))
                fail_msg("\"%s\" names workers of %d", text, workers - 1);
        }
    bool in[6], all[6] = {1, 1, 1, 1, 1, 1};
    assert_true(ls_members_parse("all", 6, in));
    assert_memory_equal(in, all, sizeof all);
    char text[8];
    ls_members_text(all, 6, text, sizeof text);
    assert_string_equal(text, "0-5");
    assert_true(ls_members_parse("5,0-2,1,3-4", 6, in));
    assert_memory_equal(in, all, sizeof all);
}

CASE(test_texts_that_name_no_workers)
{
    static const char *const texts[] = {
        "",
        " ",
        ",",
        "-",
        "0,",
        ",0",
        "0,,1",
        "0-",
        "-1",
        "1-0",
        "0-6",
        "6",
        "0--1",
        "0-1-2",
        "0 1",
        " 0",
        "0 ",
        "0x1",
        "ALL",
        "alle",
        "all,0",
        "0,all",
        "1.5",
        "+1",
        "99999999999999999999",
        "0-99999999999999999999",
        "0\r",
        "none",
    };
    bool in[6];
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (ls_members_parse(texts[i], 6, in))
            fail_msg("\"%s\" is taken", texts[i]);
}

static void line_note(void *user, const struct ls_members_change *change)
{
    char *text = user;
    snprintf(text + strlen(text), 200 - strlen(text), "%ld:%s%s%s%s%s ", (long)change->outer_step,
             change->workers, *change->lost ? "-" : "", change->lost, *change->renewed ? "*" : "",
             change->renewed);
}

#define LINE(step, workers) "{\"outer_step\": " #step ", \"workers\": \"" workers "\"}\n"
#define LOSS(step, workers, key, some)                                                             \
    "{\"outer_step\": " #step ", \"workers\": \"" workers "\", \"" key "\": \"" some "\"}\n"

CASE(test_a_file_that_is_damaged_is_named)
{
    static const struct {
        const char *text;
        int status;
        const char *says;
    } cases[] = {
        {"", LS_OK, ""},
        {LINE(2, "0") LINE(3, "all"), LS_OK, "2:0 3:all "},
        {LINE(2, "0") "{\"outer_step\": 3, \"wor", LS_OK, "2:0 "}, /* torn */
        {LOSS(2, "0-2", "lost", "1") LINE(3, "0"), LS_OK, "2:0-2-1 3:0 "},
        {LOSS(2, "0-2", "renewed", "0-2"), LS_OK, "2:0-2*0-2 "},
        {LOSS(2, "0-2", "lost", "0-2"), LS_EDATA, "members: entry 1: expected under lost"},
        {LOSS(2, "0-2", "lost", "3"), LS_EDATA, "members: entry 1: expected under lost"},
        {LOSS(2, "0-2", "lost", "x"), LS_EDATA, "members: entry 1: expected under lost"},
        {LOSS(2, "0-2", "renewed", "3"), LS_EDATA, "members: entry 1: expected under lost"},
        {LINE(2, "0") LINE(2, "1"), LS_EDATA, "members: entry 2: expected an outer_step"},
        {LINE(3, "0") LINE(2, "1"), LS_EDATA, "members: entry 2: "},
        {LINE(0, "0"), LS_EDATA, "members: entry 1: "},
        {LINE(-1, "0"), LS_EDATA, "members: entry 1: "},
        {LINE(1.5, "0"), LS_EDATA, "members: entry 1: "},
        {LINE(1e300, "0"), LS_EDATA, "members: entry 1: "},
        {LINE("2", "0"), LS_EDATA, "members: entry 1: "},
        {LINE(2, "4"), LS_EDATA, "workers such as 0-2,5 of 4"},
        {LINE(2, ""), LS_EDATA, "members: entry 1: "},
        {"{\"workers\": \"0\"}\n", LS_EDATA, "members: entry 1: "},
        {"{\"outer_step\": 2}\n", LS_EDATA, "members: entry 1: "},
        {"{\"outer_step\": 2, \"workers\": 0}\n", LS_EDATA, "members: entry 1: "},
        {LINE(2, "0") "7\n", LS_EDATA, "members:2: expected one JSON object"},
    };
    struct ls_error error = {0};
    char told[200] = "";
    const char *path = scratch_path(*state, LS_MEMBERS_FILE);
    assert_int_equal(ls_members_each(*state, 4, line_note, told, &error), LS_OK);
    assert_string_equal(told, "");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        told[0] = '\0';
        error = (struct ls_error){0};
        scratch_write(path, cases[i].text, strlen(cases[i].text));
        int status = ls_members_each(*state, 4, line_note, told, &error);
        bool right =
            status ? strstr(error.text, cases[i].says) != NULL : strcmp(told, cases[i].says) == 0;
        if (status != cases[i].status || !right)
            fail_msg("%s: status %d: %s%s", cases[i].text, status, error.text, told);
    }
}

SUITE_MAIN(scratch_setup, scratch_teardown)
