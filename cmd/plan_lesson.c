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

struct picture {
    char *text;
    size_t bytes;
};

static int picture_write(const void *context, FILE *file, struct ls_error *error)
{
    const struct picture *picture = context;
    if (fwrite(picture->text, 1, picture->bytes, file) < picture->bytes)
        return ls_error_set(error, LS_EIO, "the picture cannot be written");
    return LS_OK;
}

/* The page is printed once its picture is written. */
static int run(const struct ls_lesson *lesson, const struct ls_cluster *cluster, const char *svg,
               struct ls_error *error)
{
    struct picture page = {0}, picture = {0};
    struct ls_lesson_ask ask = {.cluster = cluster};
    ask.text = open_memstream(&page.text, &page.bytes);
    ask.picture = svg ? open_memstream(&picture.text, &picture.bytes) : NULL;
    int status = ask.text && (ask.picture || !svg)
                     ? ls_lesson_run(lesson, &ask, error)
                     : ls_error_set(error, LS_ENOMEM, "no memory for a lesson");
    if (ask.text)
        fclose(ask.text);
    if (ask.picture)
        fclose(ask.picture);
    if (!status && svg)
        status = ls_file_write(svg, picture_write, &picture, error);
    if (!status) {
        cmd_print("%s", page.text);
        if (svg)
            cmd_print("\nwrote %s\n", svg);
    }
    free(page.text);
    free(picture.text);
    return status;
}

int plan_lesson(const struct cmd_args *args, struct ls_error *error)
{
    const struct ls_lesson *lesson;
    struct ls_cluster cluster = {0};
    const char *path = cmd_args_value(args, "--cluster");
    int status = ls_lesson_find(cmd_args_value(args, "--lesson"), &lesson, error);
    if (!status)
        status = refuse_others(args, error);
    if (!status && path)
        status = ls_cluster_read(path, &cluster, error);
    if (status)
        return status;
    status = run(lesson, path ? &cluster : NULL, cmd_args_value(args, "--svg"), error);
    ls_cluster_release(&cluster);
    return status;
}
