/* lockstep plan --lesson NAME: a page of the textbook, and its picture. */
#include "plan_lesson.h"

#include <lockstep/base/file.h>
#include <lockstep/planner/lesson.h>

#include <stdlib.h>
#include <string.h>

/* A lesson has its own recipe. */
static int refuse_others(const struct cmd_args *args, struct ls_error *error)
{
    static const char *const taken[] = {"--lesson", "--svg", "--cluster"};
    if (args->words)
        return ls_error_set(error, LS_ECONFIG,
                            "%.200s: --lesson has a recipe of its own, and takes --svg and "
                            "--cluster alone",
                            args->word[0]);
    for (int i = 0; args->page->options[i].name; i++) {
        bool known = !args->value[i];
        for (size_t t = 0; t < sizeof taken / sizeof *taken; t++)
            known |= strcmp(args->page->options[i].name, taken[t]) == 0;
        if (!known)
            return ls_error_set(error, LS_ECONFIG, "%s: --lesson takes --svg and --cluster alone",
                                args->page->options[i].name);
    }
    return LS_OK;
}

struct asked {
    const struct ls_lesson *lesson;
    struct ls_lesson_ask ask;
};

static int lesson_write(const void *context, FILE *picture, struct ls_error *error)
{
    const struct asked *asked = context;
    struct ls_lesson_ask ask = asked->ask;
    ask.picture = picture;
    return ls_lesson_run(asked->lesson, &ask, error);
}

/* The page is printed once its picture is written. */
static int run(struct asked *asked, const char *svg, struct ls_error *error)
{
    char *page = NULL;
    size_t bytes;
    asked->ask.text = open_memstream(&page, &bytes);
    if (!asked->ask.text)
        return ls_error_set(error, LS_ENOMEM, "no memory for a lesson");
    int status =
        svg ? ls_file_write(svg, lesson_write, asked, error) : lesson_write(asked, NULL, error);
    fclose(asked->ask.text);
    if (!status)
        cmd_print("%s", page);
    if (!status && svg)
        cmd_print("\nwrote %s\n", svg);
    free(page);
    return status;
}

int plan_lesson(const struct cmd_args *args, struct ls_error *error)
{
    struct ls_cluster cluster = {0};
    struct asked asked = {.lesson = NULL};
    const char *path = cmd_args_value(args, "--cluster");
    int status = ls_lesson_find(cmd_args_value(args, "--lesson"), &asked.lesson, error);
    if (!status)
        status = refuse_others(args, error);
    if (!status && path)
        status = ls_cluster_read(path, &cluster, error);
    asked.ask.cluster = path ? &cluster : NULL;
    cmd_progress_begin();
    if (!status)
        status = run(&asked, cmd_args_value(args, "--svg"), error);
    ls_cluster_release(&cluster);
    return status;
}
