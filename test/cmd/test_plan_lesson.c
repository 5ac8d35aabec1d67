/* `lockstep plan --lesson`: what it refuses, its picture, and that the exercises' commands run.
 * From the root of the tree, where clusters/ is. */
#include "../support/scratch.h"
#include "../support/suite.h"
#include "../support/xml.h"
#include "run_program.h"

#include <lockstep/planner/lesson.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

CASE(test_bad_input)
{
    program_expect("plan --lesson buble", 2, "no lesson buble; did you mean bubble?");
    program_expect("plan --lesson alreduce", 2, "did you mean allreduce?");
    program_expect("plan --lesson zzzzzzzzzz", 2, "there are memory, bubble, allreduce, 3d");
    program_expect("plan --lesson", 2, "--lesson: expected memory|bubble|allreduce|3d|scaling");
    program_expect("plan --lesson bubble --top 3", 2, "--top: --lesson takes --svg and --cluster");
    program_expect("plan --lesson bubble parallel.pp=4", 2, "parallel.pp=4: --lesson has a recipe");
    program_expect("plan --lesson bubble --cluster clusters/h100-2048.yaml", 2,
                   "lesson bubble computes with no cluster");
    program_expect("plan --lesson 3d --cluster clusters/missing.yaml", ls_exit_code(LS_EIO),
                   "clusters/missing.yaml");
    program_expect("plan --lesson 3d --cluster clusters/a100-80g-1024.yaml",
                   ls_exit_code(LS_ELAYOUT), "A100 80GB SXM x 1024 has 1024 accelerators");
}

CASE_WITH(test_picture, scratch_setup, scratch_teardown)
{
    char command[512];
    const char *path = scratch_path(*state, "lesson.svg");
    snprintf(command, sizeof command, "plan --lesson memory --svg '%s'", path);
    program_expect(command, 0, "wrote ");
    char *picture = scratch_read(path, NULL);
    assert_xml(picture);
    free(picture);
    program_expect("plan --lesson memory --svg no/such/folder/a.svg", ls_exit_code(LS_EIO),
                   "no/such/folder");
}

/* What stands under "Try it". */
CASE(test_exercises_run)
{
    static char output[PROGRAM_OUTPUT_BYTES];
    size_t count;
    const struct ls_lesson *lessons = ls_lessons(&count);
    for (size_t i = 0; i < count; i++) {
        char command[1024];
        snprintf(command, sizeof command, "plan --lesson %s", lessons[i].name);
        assert_int_equal(program_run("", command, output), 0);
        const char *tried = strstr(output, "\n    lockstep ");
        assert_non_null(tried);
        tried += strlen("\n    lockstep ");
        /* A search need not go on to its end. */
        snprintf(command, sizeof command, "%.*s%s", (int)strcspn(tried, "\n"), tried,
                 strncmp(tried, "plan model.", 11) == 0 ? " --forecasts 1" : "");
        if (program_run("", command, output))
            fail_msg("%s\n%s", command, output);
    }
}

/* doc/planning.md shows the page of the bubble: each of its lines is printed. */
CASE(test_documentation)
{
    static char output[PROGRAM_OUTPUT_BYTES];
    assert_int_equal(program_run("", "plan --lesson bubble", output), 0);
    char *doc = scratch_read("doc/planning.md", NULL);
    char *line = strstr(doc, "    Lesson bubble: ");
    int lines = 0;
    assert_non_null(line);
    while (*line == '\n' || !strncmp(line, "    ", 4)) {
        char *end = line + strcspn(line, "\n"), *next = end + (*end == '\n');
        *end = '\0';
        if (end > line && !strstr(line, "...") && !strstr(output, line + 4))
            fail_msg("doc/planning.md has \"%s\", which is not printed", line);
        lines += end > line;
        line = next;
    }
    assert_true(lines > 20);
    free(doc);
}

SUITE_MAIN(NULL, NULL)
