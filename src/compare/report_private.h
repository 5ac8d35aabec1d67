/* What the files of the report share: what was read of a run, and the page's sections. */
#ifndef COMPARE_REPORT_PRIVATE_H
#define COMPARE_REPORT_PRIVATE_H

#include <lockstep/base/lock.h>
#include <lockstep/compare.h>
#include <lockstep/compare/report.h>
#include <lockstep/config/inputs.h>
#include <lockstep/trace.h>
#include <lockstep/trace/html.h>
#include <lockstep/trace/picture.h>

#include <limits.h>

/* Where the time of a step goes, and of a run what goes by besides. Colours go by these too. */
enum report_part {
    PART_COMPUTE,
    PART_OPTIMIZER,
    PART_DATA,
    PART_WAIT,                           /* + enum ls_account */
    PART_STEP = PART_WAIT + LS_ACCOUNTS, /* the parts of a step are below */
    PART_EVAL = PART_STEP,
    PART_SAVE,
    PART_REST,
    PARTS
};
_Static_assert((int)PARTS <= (int)LS_HTML_PARTS, "a colour for each part");
/* "computing", "waiting on tp" */
const char *report_part_name(enum report_part part);

/* Of data.blend so many sources are drawn, the first ones. */
enum { REPORT_SOURCES = 8 };

/* A step, or the mean of `count` neighbours. What was not recorded is NaN. */
struct report_point {
    int64_t step; /* the last of them, as tokens and trained_s */
    int64_t count;
    double tokens;
    double trained_s; /* since the run began, without the gaps between its starts */
    double loss, grad_norm, lr, step_s, tokens_per_s, peak_share;
    double part[PART_STEP];
    double source[REPORT_SOURCES]; /* loss of each */
};

struct report_eval {
    int64_t step;
    double tokens, trained_s; /* as of a point */
    double loss, bits_per_byte, sequences, eval_s;
};

enum report_kind {
    EVENT_START,
    EVENT_SAVE,
    EVENT_SIGNAL,
    EVENT_SKIP,
    EVENT_WARNING,
    EVENT_HASH,
    EVENT_END,
    EVENT_LAUNCHER,
    EVENT_KINDS
};
struct report_event {
    int64_t step; /* -1 if it was not recorded */
    double time;  /* NaN if it was not recorded */
    enum report_kind kind;
    char text[480];
};

/* A failure that a launcher saw. */
struct report_failure {
    double time, until; /* the first new step after it; NaN: there was none yet */
    char text[256];
};

struct report_checkpoint {
    int64_t step, tokens;
    char name[64], hash[33], fingerprint[256];
};

/* The outer step of a fragment (async.mode = diloco). */
struct report_outer {
    int64_t step;
    int fragment;
    double norm; /* of the outer gradient */
};

/* Groups of ranks at meetings, and workers of a parameter server (async.mode = server). */
enum {
    REPORT_GROUPS = 260,               /* of ranks, and workers; further ones are left out */
    REPORT_DRAWN = LS_PICTURE_COLOURS, /* workers that are told apart in a picture */
    REPORT_BINS = 32,
};
struct report_async {
    int64_t meetings, pushes;
    int groups, workers;          /* seen */
    double wait_s[REPORT_GROUPS]; /* [groups] that the ranks of each waited at meetings, in all */
    /* [workers] updates of each, and their staleness: its sum, and the most. */
    int64_t updates[REPORT_GROUPS], most[REPORT_GROUPS];
    double sum[REPORT_GROUPS];
    /* Updates by staleness, in bins of so many values; of all workers behind those that are drawn
     * together. */
    int64_t bin_width, bin[REPORT_DRAWN + 1][REPORT_BINS];
};

/* Grows by itself up to a bound; then every other entry goes. */
struct report_list {
    void *items;
    int64_t count, room, all; /* all: that were added */
};

struct report_run {
    char directory[PATH_MAX], name[256];
    const char *label; /* "A", "B", ..., or "" if there is one run */

    bool configured; /* config.yaml was read; with `laid_out`, resolved too */
    struct ls_config config;
    bool laid_out;
    char sources[REPORT_SOURCES][LS_CONFIG_TEXT_BYTES]; /* their names in records */
    int source_count, source_all;                       /* 0: there is one alone */
    struct ls_layout layout;
    char config_problem[1024], layout_problem[1024], metrics_problem[1024],
        checkpoints_problem[1024], launch_problem[1024];

    struct report_point *points; /* ascending; [count], each the mean of up to `width` steps */
    int64_t count, room, width;
    int64_t steps;    /* recorded */
    int64_t repeated; /* records of steps that came again: the later one holds */
    int64_t not_finite;
    int64_t tokens;
    bool torn;
    bool has_parts; /* some step has them */
    struct report_list evals, events, checkpoints, failures, outers;
    struct report_eval best;  /* of all evaluations, also those that the list dropped */
    struct report_point last; /* step with a finite loss, by itself */
    bool has_best, has_last;
    struct report_async async;
    int64_t starts;

    /* Of the newest start, and of the end. */
    char machine[512], layout_text[512], hash[33], ended[16];
    enum ls_lock_state lock; /* and who holds it */
    char holder[256];
    double peak_flops;
    int64_t hash_step;
    double total_s[PARTS], steps_s; /* of the whole run; steps_s: of its steps */
    int64_t abreast;                /* so many steps are under way at a time: a server's workers */
    /* Seconds since 1970 where they are times. */
    double wall_s, first_s, segment_s, last_s; /* wall_s: of its starts, without the gaps */
};

struct report {
    FILE *file;
    struct report_run *runs; /* [count] */
    int count;
    double memory_most; /* that a rank of any run keeps; 0: not known yet */
    struct ls_error *error;
};

/* A run's name: the last component of its directory, with links, "." and ".." seen through. */
struct ls_run_name report_name(const char *directory);
/* Zero the run first; release it in any case. */
int report_run_read(struct report_run *run, const char *directory, struct ls_error *error);
void report_run_release(struct report_run *run);
/* report_eval(run, i), ...: entry i of that list of the run. */
#define REPORT_LIST(entry)                                                                         \
    static inline const struct report_##entry *report_##entry(const struct report_run *run,        \
                                                              int64_t i)                           \
    {                                                                                              \
        return (const struct report_##entry *)run->entry##s.items + i;                             \
    }
REPORT_LIST(eval)
REPORT_LIST(event)
REPORT_LIST(failure)
REPORT_LIST(checkpoint)
REPORT_LIST(outer)

/* Room for one more entry of so many bytes; NULL without memory. */
void *report_list_add(struct report_list *list, size_t bytes);
/* What a record of a meeting, or a step, says of workers. False without memory. */
bool report_meeting_read(struct report_run *run, const struct ls_record *record);
void report_push_read(struct report_run *run, const struct ls_record *record);
/* Mean staleness of all updates; NaN if there are none. */
double report_staleness(const struct report_async *async);

/* The last step whose loss is finite, and the evaluation with the lowest; NULL: there is none. */
const struct report_point *report_last(const struct report_run *run);
const struct report_eval *report_best(const struct report_run *run);

/* Figures of the steps. */
enum { REPORT_PERCENTILES = 7 }; /* fastest, 5th, 25th, median, 75th, 95th, slowest */
struct report_speed {
    double percentile[REPORT_PERCENTILES]; /* of step_s */
    double mean_s;
    double tokens_per_s_median, tokens_per_s_mean;
    double peak_share_mean, peak_share_best; /* NaN if it was not measured */
};
int report_speed_of(const struct report_run *run, struct report_speed *speed,
                    struct ls_error *error);

/* "12.3 ms"; "2 h 05 min"; "1,234,567"; "12.3 %"; "2026-11-21 23:05:01" (UTC). */
struct report_text {
    char text[48];
};
struct report_text report_seconds(double seconds);
struct report_text report_count(double count);
struct report_text report_share(double share);
struct report_text report_time(double time);

/* Columns of a table: one that names the rows, one a run, and one more, if it has a name. alone: of
 * the only run; NULL: its label. Returns their number. */
int report_columns(const struct report *report, struct ls_html_column first, const char *alone,
                   enum ls_html_cells cells, struct ls_html_column last,
                   struct ls_html_column columns[LS_REPORT_RUNS_MAX + 2]);
/* "recipe", "layout", "run" */
const char *report_config_part(enum ls_config_part part);

/* A curve of at most so many points, of which it has none; free its x, NULL without memory. */
struct ls_series report_series(int64_t count);
/* The next point. One whose place is unknown, or before that of the last, as where a clock was put
 * back, is left out. */
void report_series_add(struct ls_series *series, double x, double y);
/* Draws the chart twice: for wide pages, and for narrow ones with lower panels; widths are set
 * here. Without a finite point a note takes its place. */
int report_chart(struct report *report, const struct ls_chart *chart);

/* The sections; each writes itself. A problem of memory comes back; what a run lacks is said on the
 * page. */
typedef int report_section(struct report *report);
typedef int report_run_section(struct report *report, const struct report_run *run);
report_section report_comparison, report_curves, report_speeds, report_times;
report_run_section report_workers, report_evaluations, report_checkpoints, report_events,
    report_configuration;
report_run_section report_layout, report_memory, report_schedule; /* of a run that is laid out */
bool report_has_workers(const struct report_run *run);
bool report_any(const struct report *report, bool (*has)(const struct report_run *run));

#endif
