/* tools/demo.sh around a program that only says what it is told to: what the demo removes, and
 * what it finds good enough. */
#include "../support/scratch.h"
#include "../support/suite.h"
#include "run_program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void script(const char *path, const char *text)
{
    scratch_write(path, text, strlen(text));
    assert_int_equal(chmod(path, 0755), 0);
}

/* Runs the demo in the folder's `runs`; the model ends with that many bits per byte. */
static void demo(const char *folder, const char *bits, int code, const char *words)
{
    char command[2048];
    static char output[PROGRAM_OUTPUT_BYTES];
    script(scratch_path(folder, "bible"), "#!/bin/sh\necho in the beginning\n");
    script(scratch_path(folder, "lockstep"), "#!/bin/sh\nif [ \"$1\" = eval ]; then\n"
                                             "echo \"step 9  8 sequences  99 tokens  loss 1.4  "
                                             "perplexity 4  $BITS bits per byte\"\nfi\n");
    snprintf(command, sizeof command,
             "PATH='%s':$PATH LOCKSTEP='%s/lockstep' RUNS='%s/runs' BITS='%s' tools/demo.sh 2>&1",
             folder, folder, folder, bits);
    int got = program_shell(command, output);
    if (got != code || !strstr(output, words))
        fail_msg("expected %d and \"%s\", found %d and:\n%s", code, words, got, output);
}

CASE_WITH(test_only_what_it_made_is_replaced, scratch_setup, scratch_teardown)
{
    const char *folder = *state;
    demo(folder, "2.1", 0, "2.1 bits per byte. Written:");
    scratch_write(scratch_path(folder, "runs/make-demo/old"), "x", 1);
    scratch_write(scratch_path(folder, "runs/mine"), "x", 1);
    demo(folder, "2.1", 0, "runs/make-demo, which an earlier demo made");
    assert_int_equal(access(scratch_path(folder, "runs/make-demo/old"), F_OK), -1);
    assert_int_equal(access(scratch_path(folder, "runs/mine"), F_OK), 0);
    /* A folder of that name without the mark is the user's. */
    assert_int_equal(unlink(scratch_path(folder, "runs/make-demo/.made-by-make-demo")), 0);
    scratch_write(scratch_path(folder, "runs/make-demo/mine"), "x", 1);
    demo(folder, "2.1", 1, "runs/make-demo is not from an earlier demo: move it away");
    assert_int_equal(access(scratch_path(folder, "runs/make-demo/mine"), F_OK), 0);
}

CASE_WITH(test_a_model_that_learned_too_little_fails, scratch_setup, scratch_teardown)
{
    demo(*state, "2.1999", 0, "2.1999 bits per byte");
    demo(*state, "2.2", 1, "2.2 bits per byte: expected less than 2.2");
    demo(*state, "8.1", 1, "expected less than 2.2");
    demo(*state, "nan", 1, "expected less than 2.2");
}

SUITE_MAIN(NULL, NULL)
