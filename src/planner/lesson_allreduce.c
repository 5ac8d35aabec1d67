/* The lesson of the all-reduce: how long the gradients of 70B take over 256 ranks. */
#include "lesson_private.h"

#include <lockstep/base/words.h>

#include <stdlib.h>

enum { RANKS = 256, MESSAGES = 4 };
static const double parameters = 70e9;
static const char own_link[] = "100Gbps";
#define SEVENTY "model.preset=llama-70b data.sequence=8192 batch.global=256"

/* One rank of each host, so each has a card of its own. */
struct wires {
    struct ls_cost_group group;
    double ranks, latency_s, bytes_per_s;
};
static int wires_of(const struct ls_cluster *cluster, struct wires *wires, struct ls_error *error)
{
    if (cluster->hosts < RANKS)
        return ls_error_set(error, LS_ELAYOUT,
                            "lesson allreduce has %d ranks, each on a host of its own, and %s has "
                            "%s: give it more hosts",
                            RANKS, cluster->name, ls_counted(cluster->hosts, "host").text);
    wires->group = ls_cost_group_of(cluster, 1, 0, RANKS, cluster->accelerators);
    wires->ranks = RANKS;
    ls_cost_link(cluster, &wires->group, &wires->latency_s, &wires->bytes_per_s);
    return LS_OK;
}

static const struct message {
    const char *name;
    double bytes;
} messages[MESSAGES] = {{"all gradients, fp32", 4 * 70e9},
                        {"all gradients, bf16", 2 * 70e9},
                        {"a bucket of 1 MiB", 1 << 20},
                        {"a norm, 8 bytes", 8}};

static double ring(const struct wires *w, double bytes)
{
    return ls_ring_seconds(RANKS, bytes, w->latency_s, w->bytes_per_s, true);
}
static double tree(const struct wires *w, double bytes)
{
    return ls_tree_seconds(RANKS, bytes, w->latency_s, w->bytes_per_s, true);
}

/* Seconds that one accelerator computes for each token. */
static int token_seconds(const struct ls_cluster *cluster, double *seconds, struct ls_error *error)
{
    struct ls_config *config = malloc(sizeof *config);
    int status = config ? lesson_config(SEVENTY, config, error)
                        : ls_error_set(error, LS_ENOMEM, "no memory for a configuration");
    if (!status)
        *seconds = ls_model_flops_per_token(&config->model, config->data.sequence) /
                   (ls_cluster_peak(cluster, LS_BF16) * cluster->accelerator.product_share);
    free(config);
    return status;
}

static void given_print(const struct ls_lesson_page *page, const struct wires *w)
{
    lesson_part(page, "Question");
    lesson_say(page,
               "The gradients of %.0f billion parameters are added over %d ranks. How long does "
               "that take at %.4g Gbit/s, and how does it compare with computing them?",
               parameters / 1e9, RANKS, 8 * w->bytes_per_s / 1e9);
    lesson_part(page, "Given");
    lesson_say(page,
               "n = %d ranks, each with a card of its own: b = %s a second each way, a = %s from "
               "end to end. S bytes in all: 4 a gradient in fp32, 2 in bf16.",
               RANKS, lesson_gb(w->bytes_per_s).text, lesson_seconds(w->latency_s).text);
    lesson_say_cluster(page);
    if (page->own)
        lesson_say(page, "In this lesson that link has %s; the file's is faster.", own_link);
    lesson_part(page, "Formula");
    fputs("    each rank sends  2 (n - 1) / n S             once to add, once to hand out\n"
          "    ring             2 (n - 1) (a + S / (n b))               Thakur et al. 2005\n"
          "    two trees        2 ceil(log2 n) a + 2 S (n - 1) / (n b)  Sanders et al. 2009\n",
          page->text);
    lesson_say(page, "Both send the same bytes. A ring waits for 2 (n - 1) messages, one after "
                     "the other, a tree only for 2 log2 n.");
}

static void numbers_print(const struct ls_lesson_page *page, const struct wires *w)
{
    lesson_part(page, "Numbers");
    fprintf(page->text, "  %-22s %10s %12s %10s %10s %16s\n", "", "S", "a rank sends", "ring",
            "trees", "the planner's");
    for (int i = 0; i < MESSAGES; i++) {
        double bytes = messages[i].bytes;
        fprintf(
            page->text, "  %-22s %10s %12s %10s %10s %16s\n", messages[i].name,
            lesson_gb(bytes).text, lesson_gb(2 * (w->ranks - 1) / w->ranks * bytes).text,
            lesson_seconds(ring(w, bytes)).text, lesson_seconds(tree(w, bytes)).text,
            lesson_seconds(ls_cost_move(page->cluster, &w->group, LS_COMM_ALL_REDUCE, bytes)).text);
    }
    lesson_say(page,
               "The planner takes the faster of the two. What is large is bound by the link's "
               "rate, in whatever shape; what is small by latency, and there trees win.");
}

static void compute_print(const struct ls_lesson_page *page, const struct wires *w, double token_s)
{
    double bytes = messages[1].bytes, sequence = 8192;
    double hidden = ring(w, bytes) / token_s;
    lesson_part(page, "Numbers: beside computing");
    fprintf(page->text, "  %-46s %10s\n  %-46s %10s\n  %-46s %10.0f\n",
            "one sequence of 8,192 tokens, on one accelerator",
            lesson_seconds(sequence * token_s).text, "all gradients, bf16, in a ring",
            lesson_seconds(ring(w, bytes)).text, "tokens of a rank, to compute as long as that",
            hidden);
    lesson_say(page,
               "Operations are those of Llama 70B (6 N and attention), at the share of peak that "
               "large products reach. What a rank computes grows with its tokens; what it sends "
               "does not.");
    lesson_say(page,
               "No accelerator holds 70B: 16 bytes a parameter are %s. So tp, pp or ZeRO cut it "
               "first; of t accelerators that share a copy each sends 1 / t of this. Lockstep adds "
               "gradients in fp32, in one order, unless numerics.reduce=bf16 in mode fast.",
               lesson_gb(parameters * ls_zero_state_bytes(0, 1)).text);
}

static void answer_print(const struct ls_lesson_page *page, const struct wires *w, double token_s)
{
    double bytes = messages[1].bytes, hidden = ring(w, bytes) / token_s;
    lesson_part(page, "Answer");
    lesson_say(
        page,
        "Each rank sends %s in bf16 and needs %s for it, and %s in fp32; with trees %s less. "
        "A step hides it only if each rank computes for as long: %.0f tokens, %.1f "
        "sequences of 8,192.",
        lesson_gb(2 * (w->ranks - 1) / w->ranks * bytes).text, lesson_seconds(ring(w, bytes)).text,
        lesson_seconds(ring(w, messages[0].bytes)).text,
        lesson_seconds(ring(w, bytes) - tree(w, bytes)).text, hidden, hidden / 8192);
    lesson_part(page, "Try it");
    lesson_say(page, "How long is it over InfiniBand at 400 Gbit/s? Work it out, then:");
    lesson_command(page, "plan --lesson allreduce --cluster clusters/h100-2048.yaml");
}

static void picture_draw(const struct ls_lesson_page *page, const struct wires *w, double token_s)
{
    struct lesson_bars bars = {.title = "The gradients of 70B over 256 ranks, beside computing",
                               .axis = "seconds",
                               .legends = {"sending", "computing"},
                               .part_count = 2};
    for (int i = 0; i < 2; i++) {
        struct lesson_bar *bar = &bars.bar[bars.count++];
        bar->parts[0] = ring(w, messages[i].bytes);
        snprintf(bar->label, sizeof bar->label, "%s", messages[i].name);
        snprintf(bar->note, sizeof bar->note, "%s", lesson_seconds(bar->parts[0]).text);
    }
    for (int sequences = 1; sequences <= 8; sequences *= 2) {
        struct lesson_bar *bar = &bars.bar[bars.count++];
        bar->parts[1] = sequences * 8192 * token_s;
        snprintf(bar->label, sizeof bar->label, "computing %d x 8,192 tokens", sequences);
        snprintf(bar->note, sizeof bar->note, "%s", lesson_seconds(bar->parts[1]).text);
    }
    lesson_bars_draw(&bars, page->picture);
}

int lesson_allreduce(const struct ls_lesson_page *page, struct ls_error *error)
{
    struct ls_cluster cluster = *page->cluster; /* measured rows are borrowed */
    struct ls_lesson_page changed = *page;
    struct wires wires;
    double token_s;
    int status = LS_OK;
    changed.cluster = &cluster;
    if (page->own)
        status = ls_cluster_set(&cluster, "link.inter.bandwidth", own_link, error);
    if (!status)
        status = wires_of(&cluster, &wires, error);
    if (!status)
        status = token_seconds(&cluster, &token_s, error);
    if (status)
        return status;
    given_print(&changed, &wires);
    numbers_print(&changed, &wires);
    compute_print(&changed, &wires, token_s);
    answer_print(&changed, &wires, token_s);
    picture_draw(&changed, &wires, token_s);
    return LS_OK;
}
