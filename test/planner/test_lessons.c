/* Lessons: their numbers by hand, other clusters, and every page and picture. Runs from the root of
 * the tree, where clusters/ is. */
#include <lockstep/planner/lesson.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../support/suite.h"
#include "../support/svg.h"
#include "../support/xml.h"

#define H100 "clusters/h100-2048.yaml"

struct page {
    char *text, *picture;
    size_t text_bytes, picture_bytes;
};

static int run(const char *name, const struct ls_cluster *cluster, struct page *page,
               struct ls_error *error)
{
    const struct ls_lesson *lesson;
    int status = ls_lesson_find(name, &lesson, error);
    if (status)
        return status;
    const struct ls_lesson_ask ask = {.cluster = cluster,
                                      .text = open_memstream(&page->text, &page->text_bytes),
                                      .picture =
                                          open_memstream(&page->picture, &page->picture_bytes)};
    status = ls_lesson_run(lesson, &ask, error);
    fclose(ask.text);
    fclose(ask.picture);
    return status;
}

static void page_release(struct page *page)
{
    free(page->text);
    free(page->picture);
}

/* Made once for all tests. */
static const struct page *page_of(const char *name)
{
    static struct made {
        const char *name;
        struct page page;
    } list[8];
    struct made *made = list;
    struct ls_error error = {0};
    while (made->name && strcmp(made->name, name) != 0)
        made++;
    assert_true(made < list + 8);
    if (!made->name && run(name, NULL, &made->page, &error))
        fail_msg("%s: %s", name, error.text);
    made->name = name;
    return &made->page;
}

static void has(const struct page *page, const char *words)
{
    if (!strstr(page->text, words))
        fail_msg("expected \"%s\" in\n%s", words, page->text);
}

/* The line that begins with these words. */
static void has_row(const struct page *page, const char *begin, const char *const *words)
{
    char mark[64];
    snprintf(mark, sizeof mark, "\n  %s", begin);
    const char *row = strstr(page->text, mark);
    if (!row)
        fail_msg("no row %s in\n%s", begin, page->text);
    size_t length = strcspn(row + 1, "\n") + 1;
    const char *at = row + strlen(mark);
    for (; *words; words++) {
        at = strstr(at, *words);
        if (!at || at > row + length)
            fail_msg("expected %s in%.*s", *words, (int)length, row);
        at += strlen(*words);
    }
}
#define ROW(page, begin, ...) has_row(page, begin, (const char *const[]){__VA_ARGS__, NULL})

/* ---- by hand --------------------------------------------------------------------------------- */

/* 7e9 x 16 = 112 GB; over 4: 4 + 12 / 4 = 7, 2 + 14 / 4 = 5.5 and 16 / 4 = 4 bytes each. */
CASE(test_memory)
{
    const struct page *page = page_of("memory");
    ROW(page, "parameters, 16 bits", "2 bytes", "14.0 GB");
    ROW(page, "variance, 32 bits", "4 bytes", "28.0 GB");
    ROW(page, "in all", "16 bytes", "112 GB");
    ROW(page, "ZeRO 0", "14.0 GB", "14.0 GB", "84.0 GB", "112 GB", "21.0 GB", "no");
    ROW(page, "ZeRO 1", "14.0 GB", "14.0 GB", "21.0 GB", "49.0 GB", "21.0 GB", "yes");
    ROW(page, "ZeRO 2", "14.0 GB", "3.5 GB", "21.0 GB", "38.5 GB", "21.0 GB", "yes");
    ROW(page, "ZeRO 3", "3.5 GB", "3.5 GB", "21.0 GB", "28.0 GB", "31.5 GB", "yes");
    /* Llama 2 7B has 6,738,415,616 parameters: masters and bf16 copies, fp32 gradients, moments. */
    has(page, "40.4 GB      27.0 GB      53.9 GB       121 GB       108 GB");
}

/* 8 / 39, 16 / 47, 32 / 63, 64 / 95; 64 / (64 + 31 / 2) and 192 / (192 + 31). */
CASE(test_bubble)
{
    const struct page *page = page_of("bubble");
    ROW(page, "     8", "20.5 %", "20.5 %", " - ", " - ");
    ROW(page, "    16", "34.0 %", "34.0 %", " - ", " - ");
    ROW(page, "    32", "50.8 %", "50.8 %", "67.4 %", "67.4 %", "75.6 %", "75.6 %");
    ROW(page, "    64", "67.4 %", "67.4 %", "80.5 %", "80.5 %", "86.1 %", "86.1 %");
    ROW(page, "   279", "90.0 %", "90.0 %");
    has(page, "16 / 19 = 84.2 %, and by the table 84.2 %");
    has(page, "78.9 %: that is 15 / 19");
    /* 279 / 310; 280 / 311, where 278 / 309 is less; 279 / 310. */
    has(page, "from 279 micro-batches");
    has(page, "interleaved with 2 chunks from 140, ZB-H1 from 93");
}

/* 2 x 255 / 256 x 140 GB = 278.9 GB, at 12.5 GB/s 22.3 s; 510 and 16 messages of 4 us; a
 * collective is launched in 14 us. */
CASE(test_allreduce)
{
    const struct page *page = page_of("allreduce");
    ROW(page, "all gradients, fp32", "280 GB", "558 GB", "44.6 s", "44.6 s", "44.6 s");
    ROW(page, "all gradients, bf16", "140 GB", "279 GB", "22.3 s", "22.3 s", "22.3 s");
    ROW(page, "a norm, 8 bytes", "8 B", "2.04 ms", "64 us", "78 us");
    has(page, "1.12 TB");
}

/* 405.8 x 10^9 parameters x 16 bytes are 6.49 TB, 81.2 times 80 GB. */
CASE(test_3d)
{
    const struct page *page = page_of("3d");
    has(page, "The state alone is 6.49 TB: it takes 82 accelerators of 80.0 GB");
    ROW(page, "dp alone", "1", "1", "2048", "does not fit");
    ROW(page, "tp 8, pp 16, ZeRO 1", "8", "16", "16", "1");
    has(page, "is the fastest that fits");
}

CASE(test_scaling)
{
    const struct page *page = page_of("scaling");
    ROW(page, "    1 ", "1.0", "1.0", "100.0 %", "0.0 %", "1.0", "100.0 %", "0.0 %");
    const char *row = strstr(page->text, "\n     64 ");
    double amdahl, step, speedup;
    char unit[8];
    assert_non_null(row);
    assert_int_equal(sscanf(row, "%*d %lf %lf %7s %lf", &amdahl, &step, unit, &speedup), 4);
    assert_true(speedup > 1 && speedup < amdahl && amdahl < 64);
}

/* Each doubling of the ranks is as wide as the one before, and the ideal is a straight line. */
CASE(test_scaling_is_drawn_by_doublings)
{
    static const char *const ranks[] = {"1", "2", "4", "8", "16", "32", "64"};
    const struct page *page = page_of("scaling");
    double x[7], y[7], unused;
    for (int i = 0; i < 7; i++) {
        svg_text_place(page->picture, "ls-text", "middle", ranks[i], &x[i], &unused);
        svg_text_place(page->picture, "ls-text", "end", ranks[i], &unused, &y[i]);
    }
    for (int i = 1; i < 7; i++) {
        assert_true(fabs(x[i] - x[0] - i * (x[6] - x[0]) / 6) < 0.2);
        assert_true(fabs(y[i] - y[0] - i * (y[6] - y[0]) / 6) < 0.2);
    }
}

/* ---- all of them ----------------------------------------------------------------------------- */

CASE(test_every_lesson)
{
    static const char *const parts[] = {"\nQuestion\n", "\nGiven\n",  "\nFormula\n",    "\nNumbers",
                                        "\nAnswer\n",   "\nTry it\n", "\n    lockstep "};
    size_t count;
    const struct ls_lesson *lessons = ls_lessons(&count);
    assert_int_equal(count, 5);
    for (size_t i = 0; i < count; i++) {
        const struct page *page = page_of(lessons[i].name);
        const char *at = page->text;
        for (size_t p = 0; p < sizeof parts / sizeof *parts; p++) {
            at = strstr(at, parts[p]);
            if (!at)
                fail_msg("%s: no %s in its place", lessons[i].name, parts[p]);
        }
        assert_xml(page->picture);
        assert_non_null(strstr(page->picture, "prefers-color-scheme:dark"));
        assert_svg_texts(page->picture);
        if (strstr(page->picture, "height=\"14\"/>"))
            assert_svg_legend(page->picture);
        const char *const wrong[] = {" nan", "-nan", " inf"};
        for (size_t w = 0; w < 3; w++) {
            assert_null(strstr(page->text, wrong[w]));
            assert_null(strstr(page->picture, wrong[w]));
        }
    }
}

CASE(test_names)
{
    struct ls_error error = {0};
    const struct ls_lesson *lesson;
    assert_int_equal(ls_lesson_find("buble", &lesson, &error), LS_ECONFIG);
    assert_string_equal(error.text, "no lesson buble; did you mean bubble? (there are memory, "
                                    "bubble, allreduce, 3d, scaling)");
    assert_int_equal(ls_lesson_find("", &lesson, &error), LS_ECONFIG);
}

/* ---- clusters -------------------------------------------------------------------------------- */

/* No layout fits, and the fast link joins 16: the page says so. */
CASE(test_3d_elsewhere)
{
    struct ls_error error = {0};
    struct ls_cluster cluster;
    struct page page;
    assert_int_equal(ls_cluster_read(H100, &cluster, &error), LS_OK);
    cluster.accelerator.memory_bytes = 1e9;
    cluster.link[0].joins = cluster.accelerators = 16;
    assert_int_equal(run("3d", &cluster, &page, &error), LS_OK);
    ROW(&page, "tp 16", "16", "1", "128", "3", "12.3 GB", "does not fit");
    has(&page, "Here one link joins all 16.");
    has(&page, "None of these fits into this cluster's accelerators.");
    assert_null(strstr(page.text, "is the fastest that fits"));
    assert_null(strstr(page.text, "The fast link joins fewer than 16"));
    page_release(&page);
    ls_cluster_release(&cluster);
}

CASE(test_other_clusters)
{
    struct ls_error error = {0};
    struct ls_cluster cluster;
    struct page page;
    assert_int_equal(ls_cluster_read(H100, &cluster, &error), LS_OK);
    assert_int_equal(run("allreduce", &cluster, &page, &error), LS_OK);
    ROW(&page, "all gradients, bf16", "140 GB", "279 GB", "5.87 s"); /* 278.9 / 47.5 */
    page_release(&page);
    assert_int_equal(run("bubble", &cluster, &page, &error), LS_ECONFIG);
    assert_non_null(strstr(error.text, "lesson bubble computes with no cluster"));
    page_release(&page);
    assert_int_equal(ls_cluster_set(&cluster, "hosts", "100", &error), LS_OK);
    assert_int_equal(run("allreduce", &cluster, &page, &error), LS_ELAYOUT);
    assert_non_null(strstr(error.text, "has 100 hosts: give it more"));
    page_release(&page);
    assert_int_equal(run("3d", &cluster, &page, &error), LS_ELAYOUT);
    assert_non_null(strstr(error.text, "has 800 accelerators: give it more hosts"));
    page_release(&page);
    ls_cluster_release(&cluster);
}

SUITE_MAIN(NULL, NULL)
