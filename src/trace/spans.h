/* A trace's memory: what spans.c fills and spans_write.c writes. */
#ifndef TRACE_SPANS_H
#define TRACE_SPANS_H

#include <lockstep/trace.h>

enum {
    TRACE_DEPTH_MAX = 32,
    TRACE_GROUPS_MAX = 32,
    TRACE_FLOWS_MAX = 512,
    TRACE_BACKGROUND_MAX = 1024,
};

enum trace_event_type {
    TRACE_NONE,
    TRACE_SPAN,
    TRACE_OP,         /* a span that is an op */
    TRACE_TRANSFER,   /* a span that is a blocking transfer */
    TRACE_START,      /* a span that starts one in the background */
    TRACE_WAIT,       /* a span that waits for a transfer in the background */
    TRACE_BACKGROUND, /* the latter */
};

struct trace_transfer {
    const char *kind, *dtype;
    int64_t bytes, elements;
    int32_t group, peer;
    bool send, receive;
    uint64_t flow;   /* 0: none */
    uint64_t number; /* in the background: of its kind on this thread */
    char label[32];
};

struct trace_event {
    enum trace_event_type type;
    const char *name, *category, *phase;
    int64_t begin_ns, duration_ns; /* -1: still under way */
    int64_t at[LS_TRACE_KEYS];
    union {
        struct trace_transfer transfer;
        struct ls_trace_op op;
    };
};

struct trace_group {
    char name[32];
    int *ranks, size;
};

/* How many messages of one key came. */
struct trace_flow {
    uint64_t key, count;
};

struct ls_trace {
    int rank;
    int depth;
    int64_t at[LS_TRACE_KEYS];
    const char *phase;
    /* Events: so far; of these in a file, or dropped; dropped. The ring holds the others. */
    uint64_t written, passed, dropped;
    size_t capacity;
    uint64_t started; /* transfers in the background so far */
    int group_count, background_next;
    char role[32];
    struct trace_group groups[TRACE_GROUPS_MAX];
    struct trace_flow flows[TRACE_FLOWS_MAX];
    struct trace_event open[TRACE_DEPTH_MAX];
    struct trace_event background[TRACE_BACKGROUND_MAX];
    struct trace_event ring[];
};

enum { TRACE_FILE_BYTES_MAX = 256 << 20 };

int64_t trace_now_ns(void);

#endif
