/* Lessons: finding one, running one, and the figures that they begin with. */
#include "planner/lesson_private.h"

#include <lockstep/base/words.h>

#include <stdlib.h>
#include <string.h>

/* In the order in which to read them. */
static const struct ls_lesson lessons[] = {
    {.name = "memory", .has_cluster = true},
    {.name = "bubble"},
    {.name = "allreduce", .has_cluster = true, .hosts = 256, .link = "100Gbps"},
    {.name = "3d", .has_cluster = true, .forecasts = true, .ranks = 2048},
    {.name = "scaling", .has_cluster = true, .forecasts = true, .ranks = 64},
};
enum { LESSONS = sizeof lessons / sizeof lessons[0] };

/* Files as strings: the Makefile writes them in C. */
static const char pages[] =
#include <src/planner/lessons.txt.inc>
    ;
static const char own_cluster[] =
#include <clusters/h100-2048.yaml.inc>
    ;

/* The lesson's page, its lines whole; memory of the caller. NULL: no memory. */
static char *page_read(const char *name)
{
    char title[64];
    snprintf(title, sizeof title, "# Lesson %s:", name);
    const char *from = strstr(pages, title), *end = strstr(from, "\n\n");
    char *page = strndup(from, end ? (size_t)(end - from) : strlen(from)), *to = page;
    for (const char *at = page; at && *at;) {
        bool goes_on = !strncmp(at, "\n  ", 3) && at[3] != ' ';
        if (!goes_on || at[3] != '|')
            *to++ = goes_on ? ' ' : *at;
        at += goes_on ? 3 : 1;
    }
    if (page)
        *to = '\0';
    return page;
}

const struct ls_lesson *ls_lessons(size_t *count)
{
    *count = LESSONS;
    return lessons;
}

int ls_lesson_find(const char *name, const struct ls_lesson **lesson, struct ls_error *error)
{
    const char *names[LESSONS];
    char all[128] = "";
    for (int i = 0; i < LESSONS; i++) {
        *lesson = &lessons[i];
        if (strcmp(name, lessons[i].name) == 0)
            return LS_OK;
        names[i] = lessons[i].name;
        ls_string_add(all, sizeof all, ", ", "%s", names[i]);
    }
    const char *near = ls_nearest(name, names, LESSONS);
    return ls_error_set(error, LS_ECONFIG, "no lesson %.64s%s (there are %s)", name,
                        ls_meant(near, "").text, all);
}

/* ---- a page ---------------------------------------------------------------------------------- */

/* LS_ELAYOUT if the cluster is too small for the lesson. */
static int room_check(const struct ls_lesson *lesson, const struct ls_cluster *cluster,
                      struct ls_error *error)
{
    int64_t there = cluster->hosts * cluster->accelerators;
    if (there < lesson->ranks)
        return ls_error_set(error, LS_ELAYOUT,
                            "lesson %s has %ld ranks, and %s has %s: give it more hosts",
                            lesson->name, (long)lesson->ranks, cluster->name,
                            ls_counted(there, "accelerator").text);
    if (cluster->hosts < lesson->hosts)
        return ls_error_set(error, LS_ELAYOUT,
                            "lesson %s has %ld ranks, each on a host of its own, and %s has %s: "
                            "give it more hosts",
                            lesson->name, (long)lesson->hosts, cluster->name,
                            ls_counted(cluster->hosts, "host").text);
    return LS_OK;
}

/* The asked-for cluster, or the lesson's own figures; NULL: the lesson has none. */
static int cluster_choose(const struct ls_lesson *lesson, struct lesson_page *page,
                          struct ls_cluster *own, struct ls_error *error)
{
    if (page->cluster && !lesson->has_cluster)
        return ls_error_set(error, LS_ECONFIG,
                            "lesson %s computes with no cluster's figures: leave it out",
                            lesson->name);
    if (!lesson->has_cluster)
        return LS_OK;
    int status = LS_OK;
    if (page->own) {
        status = ls_cluster_read_text("the lesson's figures", own_cluster, strlen(own_cluster), own,
                                      error);
        page->cluster = own;
    }
    if (!status && page->own && lesson->link)
        status = ls_cluster_set(own, "link.inter.bandwidth", lesson->link, error);
    if (!status && page->own && lesson->link) /* the rate that is reached */
        status = ls_cluster_set(own, "link.inter.share", "1", error);
    return status ? status : room_check(lesson, page->cluster, error);
}

/* Prints a page, which it takes apart. */
static int page_print(struct lesson_page *page, char *text, FILE *picture)
{
    fprintf(page->text, "%s\n", strsep(&text, "\n") + 2);
    while (text)
        lesson_line(page, strsep(&text, "\n"));
    if (!page->status && picture)
        page->status = lesson_picture_draw(page->picture, picture, page->error);
    return page->status;
}

int ls_lesson_run(const struct ls_lesson *lesson, const struct ls_lesson_ask *ask,
                  struct ls_error *error)
{
    struct ls_cluster own = {0};
    struct lesson_page page = {.lesson = lesson,
                               .cluster = ask->cluster,
                               .own = !ask->cluster,
                               .text = ask->text,
                               .error = error};
    char *text = page_read(lesson->name);
    int status =
        text ? cluster_choose(lesson, &page, &own, error) : ls_no_memory(error, "for a lesson");
    if (!status && ask->picture)
        status = lesson_picture_new(&page.picture, error);
    if (!status)
        status = page_print(&page, text, ask->picture);
    free(page.picture);
    free(text);
    ls_cluster_release(&own);
    return status;
}
