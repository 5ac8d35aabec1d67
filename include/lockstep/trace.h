/* lockstep/trace.h - what a run records, and how it is shown.
 *
 *   struct ls_jsonl            metrics: one JSON object a line
 *   struct ls_tensorboard      scalars for TensorBoard
 *   struct ls_trace            spans of one thread, for Perfetto and chrome://tracing
 *   ls_prometheus_write        metrics as Prometheus and OpenMetrics read them
 *   lockstep/trace/picture.h   the loss, and any other curves, as a picture (SVG)
 *
 * Everything here is Local, and an object is used by one thread at a time. No record allocates. */
#ifndef LOCKSTEP_TRACE_H
#define LOCKSTEP_TRACE_H

#include <lockstep/base.h>

#include <stdio.h>

LS_C_BEGIN

/* ---- JSON lines ----------------------------------------------------------------------------- */

/* Opens path for appending and creates it where it is absent. A last line without its end, as a
 * killed process leaves it, is cut off. */
struct ls_jsonl;
int ls_jsonl_open(struct ls_jsonl **out, const char *path, struct ls_error *error);
/* One record: begin, its fields in the order they are to be read, end. Keys are given once. */
void ls_jsonl_begin(struct ls_jsonl *jsonl);
void ls_jsonl_int(struct ls_jsonl *jsonl, const char *key, int64_t value);
/* At most 9 digits, as few as give the same fp32 back; null if value is not finite. */
void ls_jsonl_float(struct ls_jsonl *jsonl, const char *key, float value);
/* 17 digits, the same fp64 back; null if value is not finite. */
void ls_jsonl_double(struct ls_jsonl *jsonl, const char *key, double value);
/* Bytes that are not UTF-8 become U+FFFD. */
void ls_jsonl_string(struct ls_jsonl *jsonl, const char *key, const char *value);
/* Hands the line to the system in one piece: a reader sees whole lines only. If the system refuses
 * it (LS_ENOSPC, LS_EIO), the file is cut back to the lines before, and the record waits in memory:
 * each later record writes all that wait ahead of itself. At most 4 MiB wait; what comes then is
 * lost. LS_EINVAL: the record is over 64 KiB; nothing is written. */
int ls_jsonl_end(struct ls_jsonl *jsonl, struct ls_error *error);
/* Writes what waits. LS_ENOSPC, LS_EIO: it still does. */
int ls_jsonl_flush(struct ls_jsonl *jsonl, struct ls_error *error);
/* How many records are lost so far. */
int64_t ls_jsonl_lost(const struct ls_jsonl *jsonl);
/* Writes what waits, closes and frees; jsonl may be NULL. */
int ls_jsonl_close(struct ls_jsonl *jsonl, struct ls_error *error);
/* The record that was ended last, whether it could be written or not: a line of so many bytes.
 * Valid until the next one begins. */
const char *ls_jsonl_line(const struct ls_jsonl *jsonl, size_t *bytes);

/* One number of each record over another: the loss over the step. */
struct ls_series {
    double *x, *y; /* count each; NaN if the file has null */
    size_t count;
};
enum { LS_SERIES_MAX = 32 };
/* Reads series[count], at most LS_SERIES_MAX: of the records of path that have x_key, a whole
 * number from 0, the fields y_keys. x ascends: where the file goes back, as that of a run which
 * went on from an older checkpoint does, what it says later holds. An event ("event") does not go
 * back: it may come late. A torn last line is left out.
 * LS_EDATA names the line that is no JSON object. On failure there is nothing to release. */
int ls_series_read(struct ls_series *series, const char *path, const char *x_key,
                   const char *const *y_keys, int count, struct ls_error *error);
void ls_series_release(struct ls_series *series);

/* A whole record, while ls_jsonl_each shows it. */
struct ls_record;
/* Whether it has that key; *value = its number, NaN if it is null or no number. */
bool ls_record_number(const struct ls_record *record, const char *key, double *value);
/* The number, NaN if there is none. */
double ls_record_value(const struct ls_record *record, const char *key);
/* The whole number, below 2^53 in magnitude; `otherwise` if it is none. */
int64_t ls_record_whole(const struct ls_record *record, const char *key, int64_t otherwise);
/* NULL if it has no such string; borrowed. */
const char *ls_record_text(const struct ls_record *record, const char *key);
/* "" if it has none. */
const char *ls_record_string(const struct ls_record *record, const char *key);
/* Now, as records have times: seconds since 1970. */
double ls_record_time_s(void);
typedef void ls_record_visitor(void *user, const struct ls_record *record);
/* Calls visit for one line, if it is a record. */
void ls_record_show(const char *line, size_t bytes, ls_record_visitor *visit, void *user);
/* Calls visit for each record of path, in the file's order. *torn: the last line is not whole and
 * was left out. LS_EDATA names the line that is no JSON object, after those before it. */
int ls_jsonl_each(const char *path, ls_record_visitor *visit, void *user, bool *torn,
                  struct ls_error *error);
/* Calls visit, if it is not NULL, for each record before the first whose whole number key is above
 * value; *end = the bytes of these lines. Lines are in the order of that number; lines without it
 * count to those before them. An absent file is success. LS_EDATA names the line that is no JSON
 * object. */
int ls_jsonl_each_to(const char *path, const char *key, int64_t value, ls_record_visitor *visit,
                     void *user, int64_t *end, struct ls_error *error);
/* Leaves so many bytes of path, as ls_jsonl_each_to found them. An absent file is success. */
int ls_jsonl_cut(const char *path, int64_t end, struct ls_error *error);
/* Both: a run resumed from an older checkpoint writes each step once. */
int ls_jsonl_truncate_after(const char *path, const char *key, int64_t value,
                            ls_record_visitor *visit, void *user, struct ls_error *error);

/* ---- TensorBoard ---------------------------------------------------------------------------- */

struct ls_scalar {
    const char *tag; /* UTF-8; a slash groups: "loss_metrics/global_avg_loss" */
    float value;
};

/* Creates DIRECTORY/events.out.tfevents.<time>.<host>.<pid>.<n>. wall_time_s is seconds since 1970.
 * purge_step >= 0 tells TensorBoard that a resumed run starts there again: it drops what older
 * files of the directory hold from that step on. */
struct ls_tensorboard;
int ls_tensorboard_open(struct ls_tensorboard **out, const char *directory, double wall_time_s,
                        int64_t purge_step, struct ls_error *error);
/* One event that holds all of them, handed to the system in one piece. LS_EINVAL: the tags are over
 * 16 KiB together. */
int ls_tensorboard_scalars(struct ls_tensorboard *board, double wall_time_s, int64_t step,
                           const struct ls_scalar *scalars, size_t count, struct ls_error *error);
/* Closes and frees; board may be NULL. */
int ls_tensorboard_close(struct ls_tensorboard *board, struct ls_error *error);

/* ---- spans and transfers -------------------------------------------------------------------- */

/* What one thread did and when. Every call accepts NULL and then does nothing, which is how tracing
 * is off. Names, categories and phases are borrowed until the trace is freed: string literals. */
struct ls_trace;
/* A ring of event_count events (about 150 bytes each) that are in no file yet: when it is full, the
 * oldest go, and are counted. rank and role ("main", "comm", "prefetch") name the thread in the
 * picture. Nothing is allocated after this and ls_trace_group. */
int ls_trace_new(struct ls_trace **out, int rank, const char *role, size_t event_count,
                 struct ls_error *error);
void ls_trace_free(struct ls_trace *trace);
/* Events that went because the ring, or the file, was full. */
uint64_t ls_trace_dropped(const struct ls_trace *trace);
/* Time to write: half of the ring holds events that are in no file. */
bool ls_trace_half_full(const struct ls_trace *trace);

/* Where what follows belongs; each event takes down what held when it began. -1, as at first: to
 * none. */
enum ls_trace_key {
    LS_TRACE_STEP,
    LS_TRACE_MICRO_BATCH,
    LS_TRACE_CHUNK, /* of this rank */
    LS_TRACE_STAGE, /* of the pipeline */
    LS_TRACE_LAYER,
    LS_TRACE_KEYS
};
void ls_trace_set(struct ls_trace *trace, enum ls_trace_key key, int64_t value);
/* "train", "evaluate", ...; returns the phase before (NULL without a trace), to be set again. */
const char *ls_trace_phase(struct ls_trace *trace, const char *phase);

/* Spans nest (at most 32 deep); an end closes the span that was begun last. */
void ls_trace_begin(struct ls_trace *trace, const char *name, const char *category);
void ls_trace_end(struct ls_trace *trace);

/* An op: [m, n] elements of k terms each, its operations and the bytes that it moves at least. */
struct ls_trace_op {
    const char *name, *dtype;
    int64_t m, n, k;
    double flops, bytes;
};
/* A span of category "op" until ls_trace_end. */
void ls_trace_op(struct ls_trace *trace, const struct ls_trace_op *op);

/* A collective or a message between ranks, as this rank sees it. ls_comm_set_trace makes these. */
struct ls_trace_transfer {
    const char *operation; /* "reduce_scatter" */
    const char *kind;      /* what it is counted as: ls_comm_kind_name */
    int group;             /* of ls_trace_group */
    int peer;              /* world rank of a message's other end or a broadcast's root; -1 */
    int tag;               /* of a message */
    bool send, receive;    /* a message */
    int64_t bytes;         /* that this rank hands over: struct ls_comm_stats */
    int64_t elements;
    const char *dtype;
    const char *label; /* what moves; copied; may be NULL */
};
/* A group of ranks: *group is its number in this trace. ranks[size] of the world are copied. */
int ls_trace_group(struct ls_trace *trace, const char *name, const int *ranks, int size, int *group,
                   struct ls_error *error);
/* Blocking: a span of category "comm" until ls_trace_end. */
void ls_trace_transfer(struct ls_trace *trace, const struct ls_trace_transfer *transfer);
/* In the background: from now until it is done, beside the spans. Its start is a span of category
 * "start" until ls_trace_end. Returns its number, 0 for none (without a trace, or with 1024 of them
 * open). */
int ls_trace_start(struct ls_trace *trace, const struct ls_trace_transfer *transfer);
/* It is known to have ended now, or before. */
void ls_trace_done(struct ls_trace *trace, int number);
/* A span of category "wait" until ls_trace_end, for that transfer; then ls_trace_finish. */
void ls_trace_wait(struct ls_trace *trace, int number);
void ls_trace_finish(struct ls_trace *trace, int number);

/* The traces of all threads of a process as one Chrome trace (Trace Event Format, JSON array): pid
 * = rank, tid = place in the list. Spans are complete events whose args say what ls_trace_set and
 * ls_trace_phase said; transfers in the background are asynchronous events; messages have flow
 * arrows from send to receive. Times are microseconds of the monotonic clock, which the processes
 * of one machine share; events of type M name threads and groups, and say the clocks and how many
 * events were dropped.
 *
 * The file only grows: each event is written once, and goes from the ring. Its list is open until
 * close, which the format allows. It takes at most 256 MiB; later events are dropped. The threads
 * must be at rest in each call; traces are borrowed until close. */
struct ls_trace_file;
int ls_trace_file_open(struct ls_trace_file **out, const char *path, struct ls_trace *const *traces,
                       size_t count, struct ls_error *error);
/* Appends what has ended since the last call. After a failure it is tried again by the next. */
int ls_trace_file_write(struct ls_trace_file *file, struct ls_error *error);
/* The same, then what is still open, until now, with "unfinished"; closes and frees. NULL is
 * allowed. */
int ls_trace_file_close(struct ls_trace_file *file, struct ls_error *error);

/* A span that ended, of such a file. Strings are borrowed until visit returns. */
struct ls_trace_span {
    const char *name, *category;
    const char *group; /* of a transfer; "" of others */
    int64_t step;      /* -1: of none */
    double begin_s, duration_s;
};
/* What such a file says of itself. */
struct ls_trace_sums {
    int64_t dropped;  /* events that came before its spans and were lost */
    double written_s; /* when it was last written: as ls_record_time_s; NaN: it does not say */
};
/* Shows the spans of a file in its order: what lies within one comes before it. *sums is set
 * before. LS_EDATA if it is no trace, with the line or the event; LS_EIO. */
int ls_trace_read(const char *path, void (*visit)(void *user, const struct ls_trace_span *span),
                  void *user, struct ls_trace_sums *sums, struct ls_error *error);
/* The same of text[bytes], which errors call `name`. */
int ls_trace_read_text(const char *name, const char *text, size_t bytes,
                       void (*visit)(void *user, const struct ls_trace_span *span), void *user,
                       struct ls_trace_sums *sums, struct ls_error *error);

/* ---- Prometheus and OpenMetrics ------------------------------------------------------------- */

enum ls_metric_type { LS_METRIC_GAUGE, LS_METRIC_COUNTER };
enum { LS_METRIC_LABELS_MAX = 4 };
struct ls_metric_label {
    const char *name; /* [a-zA-Z_][a-zA-Z0-9_]*; NULL ends the list */
    const char *value;
};
struct ls_metric {
    const char *name; /* [a-zA-Z_:][a-zA-Z0-9_:]*, without _total, ending with _<unit> */
    const char *help;
    const char *unit; /* "seconds", "bytes", ...; NULL: none */
    enum ls_metric_type type;
    struct ls_metric_label labels[LS_METRIC_LABELS_MAX];
    double value; /* of a counter: finite, not negative */
};
/* Text that both OpenMetrics 1.0 parsers and those of Prometheus' text format 0.0.4 accept: without
 * time stamps, counters with the suffix _total, `# EOF` at the end. (The older format knows
 * counters by their suffix alone; their type is unknown to it.) Metrics of one name follow each
 * other and share the first one's metadata. LS_EINVAL names what is malformed: a name, a label, a
 * unit that the name does not end with, a counter's value, a name that comes again after others. */
int ls_prometheus_write(FILE *out, const struct ls_metric *metrics, size_t count,
                        struct ls_error *error);

LS_C_END
#endif
