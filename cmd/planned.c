/* What `lockstep plan` prints: lists of plans, and where the time of one goes. */
#include "planned.h"
#include "cmd.h"

#include <lockstep/base/words.h>
#include <lockstep/config.h>

#include <math.h>
#include <string.h>

/* ---- larger leaves --------------------------------------------------------------------------- */

/* The step with leaves of that many sequences; 0 if the recipe does not admit them, or they do
 * not fit into memory. */
static double step_of(const struct ls_search_options *options, const struct ls_config *config,
                      int64_t leaf)
{
    static struct ls_config tried;
    static struct ls_layout layout;
    struct ls_forecast forecast;
    tried = *config;
    tried.numerics.leaf_sequences = leaf;
    const struct ls_forecast_ask ask = {.config = &tried,
                                        .layout = &layout,
                                        .cluster = options->cluster,
                                        .tokens = options->tokens,
                                        .extend = true};
    int status = ls_config_layout(&tried, 0, &layout, NULL);
    if (!status)
        status = ls_forecast_make(&ask, &forecast, NULL);
    return status || !forecast.fits ? 0 : forecast.step_s;
}

static int64_t least_factor(int64_t n)
{
    int64_t factor = 2;
    while (n % factor)
        factor++;
    return factor;
}

/* If waiting for dp is what the step costs: the larger leaf that costs less, with what it takes. */
static void planned_leaves(const struct ls_search_options *options, const struct ls_config *config,
                           const struct ls_layout *layout, const struct ls_forecast *f)
{
    static const double worth = 0.02; /* of a step */
    int64_t best = 0, leaf = layout->numerics.leaf_sequences, batch = config->batch.global;
    int64_t dp = layout->size[LS_AXIS_DP_REPLICATE] * layout->size[LS_AXIS_DP_SHARD];
    double best_s = f->step_s;
    if (layout->numerics.fast || dp == 1 ||
        f->exposed_s[LS_ACCOUNT_SHARD] + f->exposed_s[LS_ACCOUNT_REPLICATE] < worth * f->step_s)
        return;
    for (int64_t leaves = batch / leaf / dp; leaves > 1;) { /* of a rank */
        leaves /= least_factor(leaves);
        leaf = batch / dp / leaves;
        double step_s = step_of(options, config, leaf);
        if (step_s <= 0 || step_s > best_s * (1 - worth))
            continue;
        best = leaf;
        best_s = step_s;
    }
    if (best)
        printf("  each leaf of %s is summed over dp by itself: with numerics.leaf_sequences=%ld "
               "(another recipe, other bits) a step would take %s, and dp could be up to %ld\n",
               ls_counted(layout->numerics.leaf_sequences, "sequence").text, (long)best,
               ls_duration(best_s).text, (long)(batch / best));
}

static double tokens_of(const struct ls_config *config)
{
    return (double)config->batch.global * (double)config->data.sequence;
}

/* ---- numbers --------------------------------------------------------------------------------- */

/* What is too little to tell is less than the least. */
static struct ls_counted at_least(double n, double least, const char *behind)
{
    struct ls_counted out;
    snprintf(out.text, sizeof out.text, "%s%.20s%s", n < least ? "less than " : "",
             ls_amount(n < least ? least : n).text, behind);
    return out;
}

/* ---- the list -------------------------------------------------------------------------------- */

void planned_head(const struct ls_search_options *options)
{
    const struct ls_config *config = options->config;
    const struct ls_cluster *cluster = options->cluster;
    printf("%s: %s parameters; a step of %s of %s, %s\n",
           *config->model_keys.preset ? config->model_keys.preset
                                      : ls_arch_name(config->model.arch),
           ls_amount(ls_forecast_parameters(config)).text,
           ls_counted(config->batch.global, "sequence").text,
           ls_counted(config->data.sequence, "token").text, ls_config_precision(config));
    cmd_print("on %s: %s of %ld x %s, %s each\n", cluster->name,
              ls_counted(cluster->hosts, "host").text, (long)cluster->accelerators,
              cluster->accelerator.name, ls_bytes(cluster->accelerator.memory_bytes).text);
    int64_t groups = ls_config_groups(config);
    if (groups > 1)
        printf("the layout of one of %ld groups of ranks (async.mode): all of them take %ld times "
               "the accelerators, power and price\n",
               (long)groups, (long)groups);
}

static double tokens_in_all(const struct ls_search_options *options)
{
    return options->tokens > 0 ? options->tokens : ls_forecast_tokens(options->config);
}

/* "$974k", "less than $0.01". */
static struct ls_counted dollars(double n)
{
    struct ls_counted amount = ls_amount(fmax(n, 0.01)), out;
    const char *unit = strchr(amount.text, ' ');
    int digits = (int)strcspn(amount.text, " ");
    snprintf(out.text, sizeof out.text, "%s$%.*s%s", n < 0.01 ? "less than " : "", digits,
             amount.text,
             !unit            ? ""
             : unit[1] == 'G' ? "B"
                              : unit + 1);
    return out;
}

/* What the list by cost is ordered by: dollars of the training, as if nothing failed; without a
 * price, accelerators times a step. */
static struct ls_counted cost(const struct ls_search_options *options, const struct ls_forecast *f)
{
    double price = options->cluster->price_per_hour, value = ls_search_value(options, f);
    if (price <= 0)
        return ls_duration(value);
    double steps = tokens_in_all(options) / tokens_of(options->config);
    return dollars(value * steps * price / 3600);
}

static void line_print(const struct ls_search_options *options, int number,
                       const struct ls_search_plan *plan)
{
    const struct ls_forecast *f = &plan->forecast;
    printf("%3d  ", number);
    if (options->goal == LS_GOAL_COST)
        printf("%12s %13ld ", cost(options, f).text, (long)f->ranks * f->accelerators);
    printf("%10s %9s %5.1f%% %6.1f%% %6.1f%% %6.1f%% %6.1f%% %11s  ", ls_duration(f->step_s).text,
           ls_amount(f->tokens_per_s).text, 100 * f->mfu, 100 * f->bubble,
           100 * f->exposed_s[LS_ACCOUNT_TP] / f->step_s,
           100 * f->exposed_s[LS_ACCOUNT_CP] / f->step_s,
           100 * (f->exposed_s[LS_ACCOUNT_SHARD] + f->exposed_s[LS_ACCOUNT_REPLICATE]) / f->step_s,
           ls_bytes(f->device_bytes).text);
    cmd_print("%s\n", plan->keys);
}

/* Which layouts are compared: those that --within leaves. */
static struct ls_counted in_time(const struct ls_search_options *options)
{
    struct ls_counted out = {""};
    if (options->within_s > 0)
        snprintf(out.text, sizeof out.text, " within %.32s", ls_duration(options->within_s).text);
    return out;
}

void planned_list(const struct ls_search_options *options, const struct ls_search *search)
{
    bool costs = options->goal == LS_GOAL_COST, priced = options->cluster->price_per_hour > 0;
    printf("\nthe best%s by %s", in_time(options).text, ls_word_of(ls_goals, options->goal));
    if (costs && priced)
        printf(": dollars of %s tokens, as if nothing failed",
               ls_amount(tokens_in_all(options)).text);
    else if (costs)
        printf(": accelerators times a step (the cluster has no price)");
    printf("\n  #%s      a step  tokens/s    MFU  bubble      tp      cp      dp      memory  "
           "layout\n",
           costs ? "          cost  accelerators" : "");
    for (int i = 0; i < search->count; i++)
        line_print(options, i + 1, &search->plans[i]);
    if (search->count < 2)
        return;
    const struct ls_forecast *best = &search->plans[0].forecast,
                             *second = &search->plans[1].forecast;
    double more = 100 * (ls_search_value(options, second) / ls_search_value(options, best) - 1);
    if (options->goal == LS_GOAL_COST)
        printf("\nthe second costs %.1f %% more\n", more);
    else if (options->goal == LS_GOAL_MEMORY)
        printf("\nthe second takes %.1f %% more memory\n", more);
    else
        printf("\nthe second is %s\n", ls_search_reason(best, second).text);
}

void planned_counts(const struct ls_search_options *options, const struct ls_search *search,
                    double took_s)
{
    printf("\n%ld layouts: %ld that the recipe does not admit, %ld that do not fit into memory, "
           "%ld simulated, the others bounded; %.1f s\n",
           (long)search->candidates, (long)search->refused, (long)search->too_large,
           (long)search->simulated, took_s);
    if (search->unproven)
        printf("the search reached its limit: %ld more could still be better (--seconds, "
               "--forecasts)\n",
               (long)search->unproven);
    else if (search->unlisted)
        printf("the first is proven the best; the search reached its limit before the others of "
               "the list were: %ld more could still come into it (--seconds, --forecasts)\n",
               (long)search->unlisted);
    else
        printf("proven: no other layout%s is better than the first, and no other kind than the "
               "last of the list\n",
               in_time(options).text);
}

/* ---- one plan -------------------------------------------------------------------------------- */

static void part(const char *name, double s, const struct ls_forecast *f)
{
    if (s > 0.0005 * f->step_s)
        printf("  %-34s %12s %6.1f%%\n", name, ls_duration(s).text, 100 * s / f->step_s);
}

static void time_print(const struct ls_forecast *f)
{
    double products =
        f->work_s[LS_WORK_PRODUCT] + f->work_s[LS_WORK_PRODUCT_BT] + f->work_s[LS_WORK_PRODUCT_AT];
    double attention = f->work_s[LS_WORK_ATTENTION] + f->work_s[LS_WORK_ATTENTION_BACKWARD];
    double update = f->work_s[LS_WORK_UPDATE] + f->work_s[LS_WORK_SQUARES];
    char name[64];
    printf("\nwhere the time of a step goes, mean over ranks\n");
    part("products", products, f);
    part("attention", attention, f);
    part("the optimizer", update, f);
    part("other passes over memory", f->compute_s - products - attention - update - f->contended_s,
         f);
    part("slower beside collectives", f->contended_s, f);
    for (int a = 0; a < LS_ACCOUNTS; a++) {
        snprintf(name, sizeof name, "waits for %s",
                 a == LS_ACCOUNT_PP      ? "other stages (bubble)"
                 : a == LS_ACCOUNT_OTHER ? "the norm and the loss"
                                         : ls_account_name((enum ls_account)a));
        part(name, f->exposed_s[a], f);
    }
    part("waits for memory tiers", f->offload_exposed_s, f);
    part("waits for samples", f->samples_exposed_s, f);
    part("done before the slowest rank", f->idle_s, f);
    part("in all", f->step_s, f);
    if (f->slowest > 1)
        printf("  the slowest of %s sets the pace: it takes %.1f %% longer than the mean\n",
               ls_counted(f->ranks * f->accelerators, "accelerator").text, 100 * (f->slowest - 1));
}

/* What of them the network brings: bytes a second that keep a step from waiting. */
static void elsewhere_print(const struct ls_cluster *cluster, const struct ls_forecast *f)
{
    const struct ls_samples_cost *cost = &f->samples;
    double work_s = f->step_s - f->samples_exposed_s;
    printf("  from elsewhere: %s; so that no step waits, %s/s to a host",
           ls_bytes(cost->elsewhere).text, ls_bytes(cost->elsewhere / work_s).text);
    if (cost->hosts > 1)
        printf(", %s/s to all %.0f", ls_bytes(cost->elsewhere * cost->hosts / work_s).text,
               cost->hosts);
    if (cluster->storage_host_bytes_per_s > 0)
        printf("; a host gets %s/s", ls_bytes(cluster->storage_host_bytes_per_s).text);
    if (cluster->storage_bytes_per_s > 0)
        printf("; all of them get %s/s", ls_bytes(cluster->storage_bytes_per_s).text);
    if (cluster->storage_host_bytes_per_s == 0 && cluster->storage_bytes_per_s == 0)
        printf("; the cluster does not say what comes (storage.host, storage.all)");
    printf("\n");
    if (cost->cold_bytes > cost->elsewhere)
        printf("  shuffled, before their blocks are in a cache: up to %s/s to a host\n",
               ls_bytes(cost->cold_bytes / work_s).text);
}

static void samples_print(const struct ls_search_options *options, const struct ls_forecast *f)
{
    printf("\nsamples of a step: %s of a host", ls_bytes(f->samples.bytes).text);
    if (f->samples.seconds == 0 && f->samples.bytes > f->samples.elsewhere)
        printf("; the cluster names no disk (disk.read) to read them from\n");
    else if (f->samples.seconds == 0)
        printf("\n");
    else if (f->samples_exposed_s > 0)
        printf(", %s: the step before hides all but %s\n", ls_duration(f->samples.seconds).text,
               ls_duration(f->samples_exposed_s).text);
    else
        printf(", %s, hidden behind the step before\n", ls_duration(f->samples.seconds).text);
    if (f->samples.elsewhere > 0)
        elsewhere_print(options->cluster, f);
}

static void snapshot_print(const struct ls_search_options *options, const struct ls_forecast *f)
{
    const struct ls_snapshot_cost *cost = &f->run.snapshot;
    printf("\na snapshot: steps wait %s for it", ls_duration(cost->seconds).text);
    if (cost->send_s > 0)
        printf(", %s of it for copies on %s", ls_duration(cost->send_s).text,
               ls_counted(options->config->snapshot.replicas, "other host").text);
    printf("; %s to hash and copy a rank's share beside the next step\n  every %s (%s)",
           ls_duration(f->run.save.hash_s + cost->copy_s).text,
           ls_duration(f->run.snapshot_every_s).text,
           options->config->snapshot.every > 0 ? "snapshot.every"
                                               : "auto: Daly 2006, or 0.2 % of the time");
}

static void save_print(const struct ls_search_options *options, const struct ls_forecast *f)
{
    const struct ls_save_cost *save = &f->run.save;
    bool disk = options->cluster->disk_write_bytes_per_s > 0;
    printf("a checkpoint: %s, written by all ranks in %s%s: the state's hash %s, then ",
           ls_bytes(save->bytes).text, ls_duration(save->seconds).text,
           options->config->snapshot.every ? ", all but the hash beside steps" : "",
           ls_duration(save->hash_s).text);
    if (disk)
        printf("the longer of %s to copy a rank's share and %s of a host's disks\n",
               ls_duration(save->copy_s).text, ls_duration(save->write_s).text);
    else
        printf("%s to copy a rank's share; the cluster names no disk (disk.write)\n",
               ls_duration(save->copy_s).text);
    int64_t every = options->config->train.save_every;
    if (f->run.save_every_s == 0) {
        printf("  at the end alone: train.save_every is 0, and no failures are known");
    } else {
        printf("  every %s (%s)", ls_duration(f->run.save_every_s).text,
               every > 0 ? "train.save_every" : "the best: Daly 2006");
        if (every > 0 && f->run.best_every_s > 0)
            printf("; best would be every %s (Daly 2006)", ls_duration(f->run.best_every_s).text);
    }
    if (options->config->snapshot.every)
        snapshot_print(options, f);
    if (f->run.save_every_s > 0 || options->config->snapshot.every)
        printf("; goodput %.2f %%", 100 * f->run.goodput);
    printf("\n");
}

static void training_print(const struct ls_search_options *options, const struct ls_forecast *f)
{
    samples_print(options, f);
    save_print(options, f);
    printf("\nof %s tokens: %s", ls_amount(f->run.tokens).text,
           ls_duration(86400 * f->run.days).text);
    if (f->price_per_hour > 0)
        printf(", %s", dollars(f->run.price).text);
    if (options->cluster->accelerator.power_w > 0)
        printf(", %s", at_least(f->run.energy_wh, 1, f->run.energy_wh < 999.5 ? " Wh" : "Wh").text);
    if (options->cluster->failures_per_hour > 0)
        printf("; %s", at_least(f->run.failures, 0.001, " failures").text);
    printf("\n");
}

/* The textbook's formulas beside the simulation. */
static void textbook_print(const struct ls_search_options *options, const struct ls_layout *layout,
                           const struct ls_forecast *f)
{
    double pp = (double)layout->size[LS_AXIS_PP], m = (double)layout->micro_batches;
    const struct ls_config *config = options->config;
    printf("\nthe textbook beside it\n");
    if (pp > 1 && layout->schedule < LS_SCHEDULE_KINDS) {
        double share =
            ls_bubble_share((enum ls_schedule_kind)layout->schedule, layout->size[LS_AXIS_PP],
                            layout->chunks, layout->micro_batches, (struct ls_pass_times){1, 1, 1});
        if (isfinite(share))
            printf("  bubble of %s, p = %g, m = %g, v = %ld: %.1f %%; here %.1f %% (stages are not "
                   "equal, messages take time)\n",
                   ls_schedule_name((enum ls_schedule_kind)layout->schedule), pp, m,
                   (long)layout->chunks, 100 * share, 100 * f->bubble);
    }
    double flops = ls_model_flops_per_token(&config->model, config->data.sequence);
    printf("  %s operations a token (6 N and attention, unmasked), at %.0f %% of peak: %s a step; "
           "here %s\n",
           ls_amount(flops).text, 100 * options->cluster->accelerator.product_share,
           ls_duration(flops * tokens_of(config) /
                       (ls_cluster_peak(options->cluster, config->numerics.precision) *
                        options->cluster->accelerator.product_share * (double)f->ranks *
                        f->accelerators))
               .text,
           ls_duration(f->step_s).text);
    int64_t shard = layout->sets[0].shard_ranks;
    double held = ls_forecast_parameters(config) / pp / (double)layout->size[LS_AXIS_TP];
    printf("  state by ZeRO %d over %ld: %s of a rank; with activations and buffers here %s\n",
           layout->zero, (long)shard,
           ls_bytes(held * ls_zero_state_bytes(layout->zero, shard)).text,
           ls_bytes(f->device_bytes).text);
}

/* Of a GPU's memory less is left than a context and the buffers of communicators take. */
static bool is_tight(const struct ls_search_options *options, const struct ls_config *config,
                     const struct ls_forecast *f)
{
    return !options->cluster->accelerator.is_core && config->memory.device_budget == 0 &&
           f->device_bytes > 0.95 * f->capacity_bytes;
}

void planned_forecast(const struct ls_search_options *options, const struct ls_config *config,
                      const struct ls_layout *layout, const struct ls_forecast *f)
{
    time_print(f);
    if (layout)
        planned_leaves(options, config, layout, f);
    printf(
        "  model flops %.1f %% of peak (attention as if nothing were masked), computed %.1f %%\n",
        100 * f->mfu, 100 * f->hfu);
    printf("\nmemory: %s of a rank's %s%s\n", ls_bytes(f->device_bytes).text,
           ls_bytes(f->capacity_bytes).text, f->fits ? "" : ": it does not fit");
    if (f->fits && is_tight(options, config, f))
        printf("  the driver and NCCL need some of an accelerator's memory, too: "
               "memory.device_budget leaves them some\n");
    training_print(options, f);
    if (layout)
        textbook_print(options, layout, f);
}

void planned_details(const struct ls_search_options *options, const struct ls_search_plan *plan)
{
    static struct ls_config config;
    static struct ls_layout layout;
    config = *options->config;
    bool applied =
        !ls_search_apply(plan, &config, NULL) && !ls_config_layout(&config, 0, &layout, NULL);
    planned_forecast(options, &config, applied ? &layout : NULL, &plan->forecast);
}

/* ---- what if --------------------------------------------------------------------------------- */

static int figure_change(struct ls_cluster *cluster, const char *change, struct ls_error *error)
{
    char path[LS_CLUSTER_NAME_BYTES + 64];
    const char *value = strchr(change, '=');
    if (!value)
        return ls_error_set(error, LS_ECONFIG,
                            "--what-if %s: expected a figure and its value, such as "
                            "link.inter=100Gbps",
                            change);
    snprintf(path, sizeof path, "%.*s", (int)(value - change), change);
    return ls_cluster_set(cluster, path, value + 1, error);
}

int planned_change(struct ls_cluster *cluster, const char *text, struct ls_error *error)
{
    int status;
    do {
        char change[2 * LS_CLUSTER_NAME_BYTES];
        size_t length = strcspn(text, ",[");
        if (text[length] == '[') /* a pair has a comma of its own */
            length += strcspn(text + length, "]");
        length += strcspn(text + length, ",");
        if (length >= sizeof change)
            return ls_error_set(error, LS_ECONFIG, "--what-if %s: expected FIGURE=VALUE", text);
        memcpy(change, text, length);
        change[length] = '\0';
        status = figure_change(cluster, change, error);
        text += length + (text[length] == ',');
    } while (*text && !status);
    return status;
}

/* By how many percent a step is longer; what rounds to nothing has no sign. */
static double percent_more(double step_s, double before_s)
{
    double percent = 100 * (step_s / before_s - 1);
    return fabs(percent) < 0.05 ? 0 : percent;
}

/* The line about the plan's own layout on the changed cluster. */
static int same_print(const struct ls_search_options *options, const struct ls_cluster *cluster,
                      const struct ls_search_plan *plan, struct ls_error *error)
{
    static struct ls_config config;
    static struct ls_layout layout;
    struct ls_forecast forecast;
    config = *options->config;
    int status = ls_search_apply(plan, &config, error);
    if (!status)
        status = ls_config_layout(&config, 0, &layout, error);
    const struct ls_forecast_ask ask = {
        .config = &config, .layout = &layout, .cluster = cluster, .tokens = options->tokens};
    if (!status)
        status = ls_forecast_make(&ask, &forecast, error);
    if (!status)
        printf("  the same layout: %s a step, %+.1f %%%s\n", ls_duration(forecast.step_s).text,
               percent_more(forecast.step_s, plan->forecast.step_s),
               forecast.fits ? "" : " (it does not fit)");
    return status;
}

int planned_search(const struct ls_search_options *options, struct ls_search *search,
                   struct ls_error *error)
{
    int status = ls_search_run(options, search, error);
    if (status == LS_ELAYOUT && search->unproven > 0)
        ls_string_add(error->text, sizeof error->text, ". ", "Raise --seconds or --forecasts");
    return status;
}

int planned_what_if(const struct ls_search_options *options, const char *change,
                    const struct ls_search_plan *plan, struct ls_error *error)
{
    struct ls_cluster other = *options->cluster; /* measured rows are borrowed */
    struct ls_search_options changed = *options;
    struct ls_search search = {0};
    int64_t each = plan->forecast.accelerators, used = plan->forecast.ranks * each;
    int status = planned_change(&other, change, error);
    int64_t there = other.hosts * other.accelerators;
    int64_t on_host = ls_ceil_div(plan->forecast.ranks, other.hosts);
    bool enough = used <= there && on_host * each <= other.accelerators;
    changed.cluster = &other;
    changed.first = enough ? plan->keys : NULL;
    changed.accelerators = ls_min(options->accelerators, there);
    int searched = status ? status : planned_search(&changed, &search, error);
    if (searched == LS_OK || searched == LS_ELAYOUT) {
        cmd_print("\nwith %s\n", change);
        if (enough)
            status = same_print(options, &other, plan, error);
        else if (used <= there)
            printf("  the same layout: a host needs %ld cores for %s, and has %ld\n",
                   (long)(on_host * each), ls_counted(on_host, "rank").text,
                   (long)other.accelerators);
        else
            printf("  the same layout: it needs %ld accelerators, and there are %ld\n", (long)used,
                   (long)there);
    }
    if (!status && !searched) {
        double step_s = search.plans[0].forecast.step_s;
        printf("  the best then:   %s a step, %+.1f %%: ", ls_duration(step_s).text,
               percent_more(step_s, plan->forecast.step_s));
        cmd_print("%s\n", search.plans[0].keys);
    }
    ls_search_release(&search);
    return status ? status : searched;
}
