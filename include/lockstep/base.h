/* lockstep/base.h - what every other module stands on.
 *
 *   errors     struct ls_error, carried by the caller, filled once, never printed by the library
 *   arithmetic checked products and sums of sizes
 *   types      enum ls_dtype
 *   random     Philox 4x32-10, a pure function of (key, counter)
 *   hash       XXH3, and a 128-bit digest whose pieces combine by addition
 *   sums       the binary tree that fixes the order of every sum that a layout may cut
 *
 * Everything here is Local: no function communicates. */
#ifndef LOCKSTEP_BASE_H
#define LOCKSTEP_BASE_H

#include <lockstep/base/linkage.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

LS_C_BEGIN

/* ---- errors --------------------------------------------------------------------------------- */

/* Every function that can fail returns LS_OK or one of these. The program's exit code is
 * ls_exit_code() of it. */
enum ls_status {
    LS_OK = 0,
    LS_EINVAL = -1,    /* an argument is out of its domain */
    LS_ECONFIG = -2,   /* a configuration key or command line is wrong */
    LS_ELAYOUT = -3,   /* the recipe does not admit this layout */
    LS_EDATA = -4,     /* a data file (corpus, tokens, tokenizer) is malformed or does not fit */
    LS_ECKPT = -5,     /* a checkpoint is damaged or belongs to another recipe */
    LS_EIO = -6,       /* the system refused an input or output operation */
    LS_ENOSPC = -7,    /* no space left where a file was being written */
    LS_ENOMEM = -8,    /* memory could not be had */
    LS_ECOMM = -9,     /* a collective failed, did not match, or timed out */
    LS_ENUMERIC = -10, /* a loss, gradient or logit is not finite */
    LS_ESTOPPED = -11, /* stopped by a signal after saving, or at a limit of time */
    LS_ENOTSUP = -12,  /* this build or machine lacks what was asked for */
    LS_EBUSY = -13,    /* another process writes there */
};

/* What programs around this one make of an error, beside its code. */
enum ls_error_cause {
    LS_CAUSE_OTHER,
    LS_CAUSE_LATE,      /* a wait for other ranks timed out */
    LS_CAUSE_LATE_ONE,  /* so it did, and one rank alone is late */
    LS_CAUSE_KEPT,      /* another rank has ended, and what this one's worker did is kept */
    LS_CAUSE_FAULTY,    /* memory or arithmetic of a machine is faulty */
    LS_CAUSE_READ_ONLY, /* of LS_EIO: the file system is read-only (EROFS) */
    LS_CAUSE_GIVEN_UP,  /* of ls_world_run: a rank did not return, and its thread goes on */
};

/* What went wrong: where, what was expected, what to do. Owned by the caller; text is always a
 * terminated string. Initialise with {0}. It is plain bytes, and may be copied between processes.
 *
 * Behind the text are its parts, so that nobody has to find them in it; 0 and "" where there is
 * none. ls_error_set forgets them; ls_error_prefix and ls_error_suffix keep them. */
enum { LS_ERROR_KEY_BYTES = 64 };
struct ls_error {
    int code;
    char text[1024];
    /* Of the configuration's errors, "PLACE: KEY = VALUE: REASON". */
    char key[LS_ERROR_KEY_BYTES]; /* that is refused */
    int reason;                   /* where REASON begins in text */
    int unfiled; /* where what follows PLACE begins, if that is no file: "command line: " */
    int file, file_bytes;          /* FILE of "FILE:LINE: ": where it begins in text */
    int64_t line;                  /* from 1 */
    int number;                    /* 1 + the rank whose error it is, where ranks are threads */
    int cause;                     /* enum ls_error_cause */
    char host[LS_ERROR_KEY_BYTES]; /* of a cause that lies with one, if it is known */
};

/* Fills *error (NULL is allowed) and returns code. The text replaces an earlier one. It becomes one
 * line without control bytes, whatever the arguments hold (see ls_escape), and without the
 * passwords and the queries of URLs. */
int ls_error_set(struct ls_error *error, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The same of a line of a file, as ls_error_at says. */
int ls_error_line(struct ls_error *error, int code, const char *file, int64_t line,
                  const char *format, ...) __attribute__((format(printf, 5, 6)));
/* Becomes that error with its parts, and that code. */
int ls_error_copy(struct ls_error *error, int code, const struct ls_error *from);
/* As ls_error_set for the value of a configuration's key: "KEY = VALUE: " and the format's text. */
int ls_error_refuse(struct ls_error *error, int code, const char *key, const char *value,
                    const char *format, ...) __attribute__((format(printf, 5, 6)));
/* LS_ENOMEM with the text "no memory " and the format's: "for %d ranks", "to read a corpus". */
int ls_no_memory(struct ls_error *error, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Puts "<prefix>: " before the text that is there, of which a refusal stays one; returns error's
 * code. */
int ls_error_prefix(struct ls_error *error, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* The same behind the text that is there, which is cut to make room. */
int ls_error_suffix(struct ls_error *error, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Puts "FILE:LINE: " before the text, or "FILE:LINE:COLUMN: " (column 0: none), of a name of more
 * than 500 bytes "..." and its end; returns error's code. */
int ls_error_at(struct ls_error *error, const char *file, int64_t line, int64_t column);
/* Says that the text is about that key of a configuration, and where its reason begins. */
int ls_error_about(struct ls_error *error, const char *key, size_t reason);
/* Says the cause, and whose host it is ("": not known). */
int ls_error_blame(struct ls_error *error, enum ls_error_cause cause, const char *host);
/* The line, and file[bytes] (NULL is allowed) = the file that the error is about; 0 and "" if it is
 * about none. */
int64_t ls_error_place(const struct ls_error *error, char *file, size_t bytes);
/* Without a place that is no file, for who gave no command line. */
void ls_error_unplace(struct ls_error *error);
/* As ls_error_set for a failed system call: picks LS_ENOSPC, LS_ENOMEM or LS_EIO from errno_value
 * and appends strerror; of EROFS the cause is LS_CAUSE_READ_ONLY. */
int ls_error_errno(struct ls_error *error, int errno_value, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* "LS_EDATA" and so on. */
const char *ls_status_name(int code);
/* The exit code of a program that ends with this status: 0 for LS_OK, 2 for a wrong command line or
 * configuration, 10 + n for the others; the table is in doc/exit-codes.md. */
int ls_exit_code(int code);
/* A broken invariant of Lockstep itself: prints where and aborts. */
void ls_panic(const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4), noreturn));
#define LS_ASSERT(condition)                                                                       \
    do {                                                                                           \
        if (!(condition))                                                                          \
            ls_panic(__FILE__, __LINE__, "assertion failed: %s", #condition);                      \
    } while (0)

/* ---- text from outside ---------------------------------------------------------------------- */

/* Bytes of the well-formed UTF-8 character at the start of text[bytes], 0 if there is none
 * (RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF). */
size_t ls_utf8_character(const char *text, size_t bytes);
/* Bytes of text, from its start, that are well-formed UTF-8; zeros are. */
size_t ls_utf8_valid(const void *text, size_t bytes);
/* out[out_bytes], terminated = text[bytes] as it may be shown: what a terminal would obey (C0 and
 * C1 controls, DEL, marks of direction) and bytes that are not UTF-8 become \n, \t or \x1b; all
 * other text stays. Characters of `keep` ("\n" in text of several lines) stay too. Escaping twice
 * changes nothing. Returns the bytes written; what does not fit is left out. ls_error and ls_log
 * texts come through here, so whoever fills one may quote anything. */
size_t ls_escape(const char *text, size_t bytes, const char *keep, char *out, size_t out_bytes);
/* Appends formatted text to what text[bytes] holds, with `between` before it unless that is empty.
 * What does not fit is left out. */
void ls_string_add(char *text, size_t bytes, const char *between, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* The candidate that was probably meant: at most a third of the longer word's letters are wrong, or
 * the candidate begins with word (3 letters or more). NULL if none is so near. */
const char *ls_nearest(const char *word, const char *const *candidates, size_t count);
/* "; did you mean NEAR?", or otherwise if near is NULL. */
struct ls_meant {
    char text[256];
};
struct ls_meant ls_meant(const char *near, const char *otherwise);

/* ---- types ---------------------------------------------------------------------------------- */

enum ls_dtype {
    LS_F32,
    LS_BF16,
    LS_F16,
    LS_F64,
    LS_U8,
    LS_I8,
    LS_U16,
    LS_I16,
    LS_I32,
    LS_I64,
    LS_U64
};

/* Bytes of one element. */
size_t ls_dtype_bytes(enum ls_dtype dtype);
/* "F32", "BF16", ... as safetensors writes them. */
const char *ls_dtype_name(enum ls_dtype dtype);

/* bf16 is the upper half of an fp32. To bf16 rounds to nearest even; NaN stays NaN (quiet). */
typedef uint16_t ls_bf16;
static inline float ls_bf16_to_f32(ls_bf16 x)
{
    union {
        uint32_t u;
        float f;
    } v = {(uint32_t)x << 16};
    return v.f;
}
static inline ls_bf16 ls_f32_to_bf16(float x)
{
    union {
        float f;
        uint32_t u;
    } v = {x};
    uint32_t rounded = (v.u + 0x7fffu + ((v.u >> 16) & 1u)) >> 16;
    uint32_t quiet_nan = (v.u >> 16) | 0x40u;
    return (ls_bf16)((v.u & 0x7fffffffu) > 0x7f800000u ? quiet_nan : rounded);
}

/* To bf16 by 16 random bits (higher ones are ignored): the bits are added to those that bf16 has no
 * room for, and what is left below is cut. So x goes up with the probability of what is cut off,
 * and the mean over all random bits is x; a value that bf16 holds stays. Up means away from zero,
 * for both signs alike. Beyond the largest bf16 there is none: what lies there is cut and never
 * becomes infinite. Infinity stays, NaN stays NaN (quiet). No branches: a loop becomes vectors. */
static inline ls_bf16 ls_f32_to_bf16_stochastic(float x, uint32_t random)
{
    union {
        float f;
        uint32_t u;
    } v = {x};
    uint32_t size = v.u & 0x7fffffffu, sum = size + (random & 0xffffu);
    uint32_t quiet_nan = size > 0x7f800000u ? 0x400000u : 0;
    uint32_t finite_or_cut = sum < 0x7f800000u ? sum : size | quiet_nan;
    return (ls_bf16)((finite_or_cut | (v.u & 0x80000000u)) >> 16);
}

/* fp16 is IEEE 754 binary16, subnormal numbers included. To fp16 rounds to nearest even, from 65520
 * on to infinity; NaN stays NaN (quiet). The bits are those of F16C's instructions. No branches: a
 * loop of either becomes vectors. */
typedef uint16_t ls_f16;
static inline float ls_f16_to_f32(ls_f16 x)
{
    union {
        uint32_t u;
        float f;
    } v = {(x & 0x7fffu) << 13}, exponent = {239u << 23}; /* 2^112 */
    uint32_t special = (x & 0x7c00u) == 0x7c00u ? 0x7f800000u : 0;
    uint32_t quiet = special && (x & 0x3ffu) ? 0x400000u : 0;
    v.u |= special | quiet;
    v.f *= exponent.f;
    v.u |= (x & 0x8000u) << 16;
    return v.f;
}
static inline ls_f16 ls_f32_to_f16(float x)
{
    union {
        float f;
        uint32_t u;
    } v = {x}, small, half = {0.5f};
    uint32_t sign = v.u >> 16 & 0x8000u;
    v.u &= 0x7fffffffu;
    small.f = v.f + half.f; /* the sum's last bit is the last of a subnormal fp16 */
    uint32_t subnormal = small.u - half.u;
    uint32_t normal = (v.u - (112u << 23) + 0xfffu + (v.u >> 13 & 1u)) >> 13;
    uint32_t nan = v.u > 0x7f800000u ? 0x200u | (v.u >> 13 & 0x3ffu) : 0;
    uint32_t finite = v.u < 0x38800000u ? subnormal : normal; /* 2^-14 */
    return (ls_f16)(sign | (v.u >= 0x47800000u ? 0x7c00u | nan : finite));
}

/* Memory whose elements are bf16 or fp16, as a dtype beside it says. */
typedef uint16_t ls_half;
static inline float ls_half_to_f32(enum ls_dtype dtype, ls_half x)
{
    return dtype == LS_BF16 ? ls_bf16_to_f32(x) : ls_f16_to_f32(x);
}
static inline ls_half ls_f32_to_half(enum ls_dtype dtype, float x)
{
    return dtype == LS_BF16 ? ls_f32_to_bf16(x) : ls_f32_to_f16(x);
}

/* ---- checked arithmetic --------------------------------------------------------------------- */

/* *out = a * b or a + b; false on overflow (then *out is unspecified). */
bool ls_size_mul(size_t a, size_t b, size_t *out);
bool ls_size_add(size_t a, size_t b, size_t *out);
/* Room for one more element behind count in *list (of any pointer type, NULL at first), which has
 * room for *room of `bytes` each; it doubles. False, and as before, if there is no memory. */
bool ls_list_grow(void *list, int64_t count, int64_t *room, size_t bytes);
/* The same of bytes, which need room for `need` of them and have it for *room; it grows by half. */
bool ls_bytes_grow(void *bytes, size_t need, size_t *room);
static inline int64_t ls_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}
static inline int64_t ls_max(int64_t a, int64_t b)
{
    return a > b ? a : b;
}
/* The greatest common divisor; with 0 it is the other one. */
static inline int64_t ls_gcd(int64_t a, int64_t b)
{
    return b ? ls_gcd(b, a % b) : a;
}
static inline int64_t ls_ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}
static inline int64_t ls_round_up(int64_t a, int64_t b)
{
    return ls_ceil_div(a, b) * b;
}
static inline bool ls_is_pow2(int64_t a)
{
    return a > 0 && (a & (a - 1)) == 0;
}

/* ---- random numbers ------------------------------------------------------------------------- */

/* Philox 4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3",
 * SC 2011). out = f(key, counter): no state, so a number depends only on what it is for. */
struct ls_philox_key {
    uint32_t word[2];
};
void ls_philox(struct ls_philox_key key, const uint32_t counter[4], uint32_t out[4]);
/* Key for a purpose: from the run's seed and a name ("init:wte.weight", "dropout:3"). */
struct ls_philox_key ls_philox_key_of(uint64_t seed, const char *purpose);
/* 16 random bits for element `index` of a tensor at a step: one call of Philox, with the counter
 * {low half of index / 8, high half, low half of step, high half}, has those of 8 elements, the low
 * half of word 0 first and the high half of word 3 last. Kernels make the same by the block. */
static inline uint32_t ls_random_half(struct ls_philox_key key, int64_t step, int64_t index)
{
    uint64_t group = (uint64_t)index / 8, at = (uint64_t)step;
    uint32_t counter[4] = {(uint32_t)group, (uint32_t)(group >> 32), (uint32_t)at,
                           (uint32_t)(at >> 32)};
    uint32_t word[4];
    ls_philox(key, counter, word);
    return word[index % 8 / 2] >> 16 * (index % 2) & 0xffffu;
}
/* Uniform in [0, 1) with 24 bits. */
static inline float ls_uniform_of(uint32_t bits)
{
    return (float)(bits >> 8) * 0x1p-24f;
}
/* values[i] = mean + stddev * z(first + i), z standard normal: element index decides the value, so
 * shards made anywhere agree. Box-Muller in double with our own log, sine and cosine: the same bits
 * on every machine. */
void ls_normal_fill(struct ls_philox_key key, int64_t first, int64_t count, double mean,
                    double stddev, float *values);

/* ---- hashes --------------------------------------------------------------------------------- */

uint64_t ls_hash64(const void *data, size_t bytes, uint64_t seed);

/* A sum of 128-bit hashes, each keyed by what it is and where. Addition commutes, so ranks digest
 * what they own in any order and one integer reduction gives the whole's digest. */
struct ls_digest {
    uint64_t low, high;
};
/* XXH3-128 of a few bytes. */
void ls_digest_piece(struct ls_digest *digest, const char *name, int64_t row, int64_t tile,
                     const void *data, size_t bytes);
/* Float32 elements first, first + 1, ... of the array of that name, each hashed for itself (bits,
 * index and name through two rounds of a 64-bit finalizer): any cut into calls gives the same. */
void ls_digest_floats(struct ls_digest *digest, const char *name, int64_t first, int64_t count,
                      const float *values);
void ls_digest_merge(struct ls_digest *digest, const struct ls_digest *other);
/* 32 hexadecimal digits and a terminator. */
void ls_digest_hex(const struct ls_digest *digest, char text[33]);

/* ---- the order of sums ---------------------------------------------------------------------- */

/* The tree over n leaves splits at the largest power of two below n: leaves [0, split) are the left
 * child, [split, n) the right one. Any n > 1 works (law of sums, S1 and S2). */
static inline int64_t ls_tree_split(int64_t n)
{
    int64_t split = 1;
    while (split * 2 < n)
        split *= 2;
    return split;
}
/* The tree sum of n >= 0 values (0 for none), in float. */
float ls_tree_sum(const float *values, int64_t n);

/* Sum of fp64 values whose result does not depend on their order (law of sums, S5): a fixed-point
 * accumulator over the whole fp64 range, 2^-1074 to 2^1023, with 64 bits of head room.
 * Non-finite inputs set nonfinite. */
struct ls_exact_sum {
    uint64_t limb[36];
    uint64_t nonfinite;
};
void ls_exact_clear(struct ls_exact_sum *sum);
void ls_exact_add(struct ls_exact_sum *sum, double value);
void ls_exact_merge(struct ls_exact_sum *sum, const struct ls_exact_sum *other);
/* Rounded once; NaN if any input was not finite. */
double ls_exact_value(const struct ls_exact_sum *sum);

/* ---- log ------------------------------------------------------------------------------------ */

enum ls_log_level { LS_LOG_ERROR, LS_LOG_WARNING, LS_LOG_INFO, LS_LOG_DEBUG };
/* Where messages go: the caller's function. A NULL write drops them. */
struct ls_log {
    enum ls_log_level level_max;
    void (*write)(void *user, enum ls_log_level level, const char *line);
    void *user;
};
void ls_log(const struct ls_log *log, enum ls_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* ---- clock ---------------------------------------------------------------------------------- */

/* Seconds on a clock that never goes back. */
double ls_now_s(void);

/* ---- progress -------------------------------------------------------------------------------
 *
 * Signs of life of a thread that works for long without talking to the others: a layer computed,
 * bytes on the disk, a tensor read. Who waits for its rank (lockstep/comm.h) then knows that it is
 * slow and not stuck. All Local; they cost what ls_now_s does. */

/* When a thread last got on, and how far it is with what it reads, readable by other threads and
 * processes. Fields are private. */
struct ls_progress {
    uint64_t word, reads_since, read_bytes;
};
/* The calling thread gets on. Does nothing if nobody asked (ls_progress_keep). */
void ls_progress(void);
/* The calling thread begins to read something large, has read so much more of it, or is done: one
 * that waits for its rank in vain says how much that was. The second is ls_progress too. */
void ls_progress_reads(bool begins);
void ls_progress_read(size_t bytes);
/* Where the calling thread's progress is kept from here on (borrowed; NULL: nowhere). Returns where
 * it was. Communicators of a world do this for the thread that makes them. */
struct ls_progress *ls_progress_keep(struct ls_progress *where);
/* A time of ls_now_s; 0 in zeroed memory. */
void ls_progress_set(struct ls_progress *where, double time_s);
double ls_progress_s(const struct ls_progress *of);
/* Since when it reads, a time of ls_now_s, and how much it has read; 0: it does not read. */
double ls_progress_reading(const struct ls_progress *of, uint64_t *bytes);
void ls_progress_reading_set(struct ls_progress *where, double since_s, uint64_t bytes);

LS_C_END
#endif
