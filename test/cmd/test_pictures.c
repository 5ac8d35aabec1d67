/* `lockstep plot`: one run, several, and those that have nothing to show. */
#include "../support/scratch.h"
#include "../support/suite.h"
#include "../support/xml.h"
#include "run_program.h"

#include <lockstep/base.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* directory/name/metrics.jsonl with so many steps. */
static void write_run(const char *directory, const char *name, int steps)
{
    char path[1024], text[8192] = "";
    size_t used = 0;
    snprintf(path, sizeof path, "%s/%s", directory, name);
    for (char *slash = path + strlen(directory); (slash = strchr(slash + 1, '/'));) {
        *slash = '\0';
        mkdir(path, 0777);
        *slash = '/';
    }
    assert_int_equal(mkdir(path, 0777), 0);
    for (int step = 1; step <= steps; step++)
        used += (size_t)snprintf(text + used, sizeof text - used,
                                 "{\"step\": %d, \"loss\": %g, \"lr\": 0.001}\n", step, 5.0 / step);
    snprintf(path + strlen(path), 32, "/metrics.jsonl");
    scratch_write(path, text, used);
}

static char *picture(const char *directory, const char *name)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    char *text = scratch_read(path, NULL);
    assert_xml(text);
    return text;
}

CASE_WITH(test_runs, scratch_setup, scratch_teardown)
{
    const char *directory = *state;
    char arguments[4096];
    write_run(directory, "one", 1);
    write_run(directory, "old/same", 40);
    write_run(directory, "new/same", 50);
    snprintf(arguments, sizeof arguments, "plot '%s/one/'", directory);
    program_expect(arguments, 0, "/one/loss.svg");
    char *svg = picture(directory, "one/loss.svg");
    assert_non_null(strstr(svg, "train: 5.0000 at step 1<"));
    assert_non_null(strstr(svg, "<circle"));
    free(svg);
    snprintf(arguments, sizeof arguments, "plot '%s/one/.'", directory); /* from within it */
    program_expect(arguments, 0, "loss.svg");
    svg = picture(directory, "one/loss.svg");
    assert_non_null(strstr(svg, ">one</text>"));
    free(svg);

    snprintf(arguments, sizeof arguments,
             "plot '%s/old/same' '%s/one' '%s/new/same' --output '%s/both.svg' --log", directory,
             directory, directory, directory);
    program_expect(arguments, 0, "/both.svg");
    svg = picture(directory, "both.svg");
    assert_non_null(strstr(svg, "Loss of 3 runs"));
    assert_non_null(strstr(svg, ">same, train: 0.1250 at step 40"));
    assert_non_null(strstr(svg, "/new/same, train: 0.1000 at step 50")); /* told from the other */
    free(svg);
}

CASE_WITH(test_nothing_to_show, scratch_setup, scratch_teardown)
{
    const char *directory = *state;
    char arguments[2048], path[1024];
    write_run(directory, "none", 0);
    snprintf(arguments, sizeof arguments, "plot '%s/none'", directory);
    program_expect(arguments, ls_exit_code(LS_EDATA), "metrics.jsonl: no record has a loss yet");
    snprintf(path, sizeof path, "%s/none/loss.svg", directory);
    assert_int_equal(access(path, F_OK), -1);
    snprintf(arguments, sizeof arguments, "plot '%s/absent'", directory);
    program_expect(arguments, ls_exit_code(LS_EIO), "/absent/metrics.jsonl");
    program_expect("plot", ls_exit_code(LS_ECONFIG), "expected the directory of a run");
}

SUITE_MAIN(NULL, NULL)
