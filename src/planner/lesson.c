/* Lessons: the table of them, how their pages are set, and the figures that they begin with. */
#include "lesson_private.h"

#include <lockstep/base/words.h>

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static const struct ls_lesson lessons[] = {
    {"memory", "what a 7B model takes on 4 ranks, at ZeRO 0 to 3", true, lesson_memory},
    {"bubble", "how long 32 pipeline stages wait, and who waits less", false, lesson_bubble},
    {"allreduce", "the gradients of 70B over 256 ranks at 100 Gbps", true, lesson_allreduce},
    {"3d", "405B on 2,048 accelerators: why tp, why pp, why dp", true, lesson_3d},
    {"scaling", "from 1 to 64 ranks, and why that is not 64 times faster", true, lesson_scaling},
};
enum { LESSONS = sizeof lessons / sizeof lessons[0] };

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
        size_t used = strlen(all);
        snprintf(all + used, sizeof all - used, "%s%s", i ? ", " : "", names[i]);
    }
    const char *near = ls_nearest(name, names, LESSONS);
    return ls_error_set(error, LS_ECONFIG, "no lesson %.64s%s%s%s (there are %s)", name,
                        near ? "; did you mean " : "", near ? near : "", near ? "?" : "", all);
}

/* ---- the figures to begin with ----------------------------------------------------------------
 */

/* test/planner/test_lessons.c holds it against clusters/h100-2048.yaml, which has the sources. */
static const char own_cluster[] =
    "name: H100 SXM x 2048\n"
    "hosts: 256\n"
    "accelerators: 8\n"
    "accelerator:\n"
    "  name: H100 SXM5 80GB\n"
    "  peak: {fp32: 67 TFLOP/s, bf16: 989 TFLOP/s, fp16: 989 TFLOP/s}\n"
    "  memory: 80 GB\n"
    "  bandwidth: 3.35 TB/s\n"
    "  product_share: 0.73\n"
    "  attention_share: 0.55\n"
    "  pass_share: 0.85\n"
    "  tile: [128, 256]\n"
    "  units: 132\n"
    "  launch: 3 us\n"
    "  power: 700 W\n"
    "memory: 2 TiB\n"
    "host_link: 64 GB/s\n"
    "disk: {read: 25 GB/s, write: 12 GB/s, size: 30.7 TB}\n"
    "links:\n"
    "  - {name: NVLink, joins: 8, latency: 3 us, bandwidth: 450 GB/s}\n"
    "  - {name: InfiniBand, joins: 2048, latency: 8 us, bandwidth: 50 GB/s, topology: fat-tree}\n"
    "overlap: 1\n"
    "power: {host: 4.6 kW, overhead: 1.2}\n"
    "price: 2.7\n"
    "failures: 2e-5\n"
    "restart: 5 min\n";

const char *ls_lesson_cluster(void)
{
    return own_cluster;
}

int ls_lesson_run(const struct ls_lesson *lesson, const struct ls_lesson_ask *ask,
                  struct ls_error *error)
{
    struct ls_cluster own = {0};
    struct ls_lesson_page page = {
        .cluster = ask->cluster, .own = !ask->cluster, .text = ask->text, .picture = ask->picture};
    if (ask->cluster && !lesson->has_cluster)
        return ls_error_set(error, LS_ECONFIG,
                            "lesson %s computes with no cluster's figures: leave it out",
                            lesson->name);
    int status = LS_OK;
    if (lesson->has_cluster && page.own) {
        status = ls_cluster_read_text("the lesson's figures", own_cluster, strlen(own_cluster),
                                      &own, error);
        page.cluster = &own;
    }
    if (!status) {
        fprintf(page.text, "Lesson %s: %s\n", lesson->name, lesson->title);
        status = lesson->page(&page, error);
    }
    ls_cluster_release(&own);
    return status;
}

/* ---- text -------------------------------------------------------------------------------------
 */

enum { INDENT = 2, COLUMNS = 96, PARAGRAPH = 2048 };

void lesson_part(const struct ls_lesson_page *page, const char *title)
{
    fprintf(page->text, "\n%s\n", title);
}

/* Length of the word at text; a number and its unit are one. */
static int word_length(const char *text)
{
    static const char *const units[] = {"%", "s", "ms", "us", "B", "kB", "MB", "GB", "TB"};
    size_t length = strcspn(text, " "), next;
    if (length == 0 || text[length] == '\0' || !strchr("0123456789", text[length - 1]))
        return (int)length;
    next = strcspn(text + length + 1, " ,.;:)");
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (next == strlen(units[i]) && !strncmp(text + length + 1, units[i], next))
            return (int)(length + 1 + strcspn(text + length + 1, " "));
    return (int)length;
}

void lesson_say(const struct ls_lesson_page *page, const char *format, ...)
{
    char paragraph[PARAGRAPH];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(paragraph, sizeof paragraph, format, arguments);
    va_end(arguments);
    int column = 0;
    for (const char *word = paragraph; *word;) {
        int length = word_length(word);
        if (column > 0 && column + 1 + length > COLUMNS) {
            fputc('\n', page->text);
            column = 0;
        }
        fprintf(page->text, "%*s%.*s", column > 0 ? 1 : INDENT, "", length, word);
        column += (column > 0 ? 1 : INDENT) + length;
        word += length + (word[length] == ' ');
    }
    fputc('\n', page->text);
}

void lesson_command(const struct ls_lesson_page *page, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("    lockstep ", page->text);
    vfprintf(page->text, format, arguments);
    fputc('\n', page->text);
    va_end(arguments);
}

void lesson_say_cluster(const struct ls_lesson_page *page)
{
    const struct ls_cluster *c = page->cluster;
    const struct ls_cluster_link *far = &c->link[c->links - 1];
    lesson_say(page,
               "%s%s: %s of %ld x %s, %s each, %.4g TFLOP/s in bf16 of which large products reach "
               "%.0f %%; %s joins all at %s a second of each accelerator.",
               page->own ? "The lesson's own figures, those of clusters/h100-2048.yaml; --cluster "
                           "takes others. "
                         : "",
               c->name, ls_counted(c->hosts, "host").text, (long)c->accelerators,
               c->accelerator.name, lesson_gb(c->accelerator.memory_bytes).text,
               ls_cluster_peak(c, LS_BF16) / 1e12, 100 * c->accelerator.product_share, far->name,
               lesson_gb(far->bytes_per_s).text);
}

struct lesson_number lesson_gb(double bytes)
{
    struct lesson_number out;
    double gb = bytes / 1e9;
    if (gb < 1e-3)
        snprintf(out.text, sizeof out.text, bytes < 1e4 ? "%.0f B" : "%.0f kB",
                 bytes < 1e4 ? bytes : bytes / 1e3);
    else if (gb < 0.1)
        snprintf(out.text, sizeof out.text, "%.3g MB", gb * 1e3);
    else if (gb < 1000)
        snprintf(out.text, sizeof out.text, "%.*f GB", gb < 99.95 ? 1 : 0, gb);
    else
        snprintf(out.text, sizeof out.text, "%.2f TB", gb / 1e3);
    return out;
}

struct lesson_number lesson_seconds(double s)
{
    struct lesson_number out;
    if (fabs(s) < 1e-12) /* differences of equal sums too */
        snprintf(out.text, sizeof out.text, "0 s");
    else if (s >= 1)
        snprintf(out.text, sizeof out.text, s < 99.95 ? "%.3g s" : "%.0f s", s);
    else if (s >= 1e-3)
        snprintf(out.text, sizeof out.text, "%.3g ms", s * 1e3);
    else
        snprintf(out.text, sizeof out.text, "%.3g us", s * 1e6);
    return out;
}

struct lesson_number lesson_percent(double part)
{
    struct lesson_number out = {"-"};
    if (isfinite(part))
        snprintf(out.text, sizeof out.text, "%.1f %%", 100 * part);
    return out;
}

/* ---- configurations ---------------------------------------------------------------------------
 */

int lesson_config(const char *keys, struct ls_config *config, struct ls_error *error)
{
    int status = LS_OK;
    ls_config_defaults(config);
    while (*keys && !status) {
        char word[256];
        size_t length = strcspn(keys, " ");
        snprintf(word, sizeof word, "%.*s", (int)length, keys);
        status = ls_config_set(config, word, error);
        keys += length + (keys[length] == ' ');
    }
    return status ? status : ls_config_resolve(config, 0, error);
}

int lesson_room(const struct ls_cluster *cluster, const char *lesson, int64_t ranks,
                struct ls_error *error)
{
    int64_t there = cluster->hosts * cluster->accelerators;
    if (there >= ranks)
        return LS_OK;
    return ls_error_set(error, LS_ELAYOUT,
                        "lesson %s has %ld ranks, and %s has %s: give it more hosts", lesson,
                        (long)ranks, cluster->name, ls_counted(there, "accelerator").text);
}

int lesson_forecast(const struct ls_cluster *cluster, const char *keys,
                    struct ls_forecast *forecast, struct ls_error *error)
{
    struct ls_config *config = malloc(sizeof *config);
    struct ls_layout *layout = malloc(sizeof *layout);
    const struct ls_forecast_ask ask = {
        .config = config, .layout = layout, .cluster = cluster, .extend = true};
    int status =
        config && layout ? LS_OK : ls_error_set(error, LS_ENOMEM, "no memory for a layout");
    if (!status)
        status = lesson_config(keys, config, error);
    if (!status)
        status = ls_config_layout(config, 0, layout, error);
    if (!status)
        status = ls_forecast_make(&ask, forecast, error);
    free(config);
    free(layout);
    return status;
}
