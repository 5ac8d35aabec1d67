/* Private to session: orders, and who carries them out. */
#ifndef SESSION_SESSION_PRIVATE_H
#define SESSION_SESSION_PRIVATE_H

#include <lockstep/base/key.h>
#include <lockstep/infer.h>
#include <lockstep/session.h>
#include <lockstep/train.h>

#include <jansson.h>
#include <pthread.h>
#include <sys/types.h>

/* ---- an order -------------------------------------------------------------------------------- */

enum { ORDER_ARRAYS_MAX = 4, ANSWER_ARRAYS_MAX = 8 };

/* Where a verb is carried out. */
enum verb_where {
    VERB_ALONE,  /* by the session's own thread; there are no ranks */
    VERB_STARTS, /* that thread starts the ranks, and they begin with it */
    VERB_RANKS,  /* by every rank */
    VERB_ENDS    /* by every rank, which then ends */
};

struct rank;
struct verb {
    const char *name;
    const char *options; /* their names with | between */
    const char *arrays;  /* the same */
    enum verb_where where;
    bool trains;      /* needs a run */
    bool one_model;   /* workers (async.mode) train several */
    bool interrupted; /* ls_session_interrupt ends it */
    bool own;         /* of several processes each has its own options */
    int (*check)(struct ls_session *session, struct ls_error *error); /* before it is handed on */
    int (*alone)(struct ls_session *session, struct ls_error *error);
    int (*run)(struct rank *rank, struct ls_error *error); /* Collective */
};
/* Each ends with a NULL name. */
extern const struct verb verbs_run[], verbs_model[], verbs_tensor[];

struct order {
    const struct verb *verb;
    json_t *options;
    struct ls_array arrays[ORDER_ARRAYS_MAX];
    int array_count;
    int status; /* other than LS_OK: this process refuses it, and why */
    struct ls_error refusal;
};

/* What an order may say, and where its value goes: one of the pointers. It stays as it is where the
 * order does not say it. Texts and lists are borrowed. */
struct option {
    const char *name; /* NULL ends a list */
    int64_t *whole, least, most;
    double *real;
    bool *flag;
    const char **text;
    const char *needs; /* of a text that must be there: what is expected */
    int *word;
    const struct ls_word *words;
    const json_t **list;
};
/* LS_EINVAL says what was expected. */
int options_read(const struct order *order, const struct option *options, struct ls_error *error);
/* "temperature", of logits: above 0. */
int option_temperature(const struct order *order, double *value, struct ls_error *error);
/* The keys of the object "keys", as one writes them on a command line: {"train": {"steps": 3}} is
 * "train.steps=3". Zero it first, and release it. */
struct order_keys {
    char **word; /* [count] */
    int64_t count, room;
};
int order_keys_read(const struct order *order, struct order_keys *keys, struct ls_error *error);
void order_keys_release(struct order_keys *keys);
/* NULL if it was not given. */
const struct ls_array *order_array(const struct order *order, const char *name);
/* LS_EINVAL if it is given, and not of that type and so many dims. */
int order_array_check(const struct order *order, const char *name, const char *dtype, int dims,
                      struct ls_error *error);

/* ---- a session ------------------------------------------------------------------------------- */

/* A tensor to whose memory the caller has a pointer. */
struct view {
    char name[LS_PARAM_NAME_MAX + 1];
    enum ls_tensor_kind kind;
    int count;       /* of pointers */
    uint64_t let_go; /* the order after which the last pointer went: the next one looks once more */
    uint64_t digest; /* of the values when the last order was over, where this process has them */
};

struct answer_array {
    struct ls_array array;
    char name[32];
    bool owned;
};

/* Memory of ranks that have ended, to which the caller has pointers. */
struct kept {
    struct kept *next;
    int ranks;
    struct ls_arena arenas[]; /* [ranks] */
};

struct ls_session {
    pthread_mutex_t lock; /* guards what follows, up to the answer */
    pthread_cond_t changed;
    pthread_t thread;
    pid_t process;
    struct order order;
    uint64_t number, done;     /* of orders asked so far, and of the last one that is over */
    bool under_way, quits;     /* an order is; the session ends */
    bool left;                 /* it ends behind its order, for which nobody waits */
    bool opened;               /* ranks are there and have a run or a model */
    bool shared;               /* with those of other processes, which get the same orders */
    int at_work;               /* ranks that have not done the order yet */
    int status;                /* of the last order */
    struct ls_error error;     /* its text */
    struct ls_error broken;    /* why there are no ranks any more; code 0: they are well */
    bool given_up;             /* one of them was: its thread goes on, and uses all that is here */
    struct ls_session *next;   /* of those that are kept for such a thread */
    json_t *events;            /* that nobody has heard of */
    char *event, *answer_text; /* what was given out last */

    json_t *answer;
    bool reported; /* the answer has what stands in report, too */
    struct ls_session_report report;
    struct answer_array arrays[ANSWER_ARRAYS_MAX];
    int array_count;
    struct kept *kept;
    struct view *views;
    int view_count, view_room;

    volatile int stop, interrupt;
    struct ls_config config; /* while ranks are there */
    char path[4096];         /* of a model */
    struct ls_finished_choice choice;
    char which[64];
    bool model; /* ranks have a model, not a run */
};

/* What a rank has. */
struct rank {
    struct ls_session *session;
    struct ls_comm *world;
    struct ls_log log;
    struct ls_run_hooks hooks;
    struct ls_running *run;
    struct ls_trainer *trainer;   /* of run */
    struct ls_finished *finished; /* or this */
    bool speaks;                  /* answers for its process */
    bool first;                   /* rank 0 of the world */
    bool lost;                    /* what it has is of no use after the last order */
};

/* An event of that kind with more keys, of which it takes the reference; may be NULL. */
void session_tell(struct ls_session *session, const char *event, json_t *more);
/* The event of a line of a log; user is the session. */
void session_log(void *user, enum ls_log_level level, const char *line);
/* Takes the reference. */
void answer_set(struct ls_session *session, const char *key, json_t *value);
/* What a step reported, among the answer. */
void answer_report(struct ls_session *session);
/* An array of the answer: *data is memory of it, zeroed, or with owned false that which stands in
 * data already. LS_ENOMEM. */
int answer_array(struct ls_session *session, const char *name, const char *dtype, int dims,
                 const int64_t *shape, void **data, bool owned, struct ls_error *error);

/* Where the memory of a rank goes with its end, once the caller has a pointer to it. */
struct ls_arena *session_arena(struct ls_session *session, int rank);
/* Starts the ranks of session->config; they do the order, and all that follow. Returns when they
 * have ended. */
int session_ranks(struct ls_session *session, struct ls_error *error);
/* One rank's, until a verb ends it. */
void order_done(struct ls_session *session, int status, const struct ls_error *error);

/* Collective, before and after an order: what the caller wrote through views is made known. */
int views_settle(struct rank *rank, struct ls_error *error);
void views_note(struct rank *rank);

/* What describes an open run or model. */
void describe(struct rank *rank);
struct ls_runner *rank_runner(struct rank *rank);
const struct ls_tokenizer *rank_tokenizer(struct rank *rank);
const struct ls_model_config *rank_model(const struct rank *rank);
/* NaN and infinity are null. */
json_t *real_json(double value);
/* What is not UTF-8 is U+FFFD. */
json_t *text_json(const char *bytes, size_t count);
json_t *ids_json(const int32_t *ids, int64_t count);

/* Rows of [ids], of which the first lengths[i] count; or texts in their place. */
int rows_check(struct ls_session *session, struct ls_error *error);
int prompts_check(struct ls_session *session, struct ls_error *error);
int generate_run(struct rank *rank, struct ls_error *error);
int logprobs_run(struct rank *rank, struct ls_error *error);
int score_run(struct rank *rank, struct ls_error *error);

#endif
