/* lockstep/session.h - runs and models for programs whose code is no rank: what the Python package
 * is made of.
 *
 * A rank's code calls collectives, in its own thread or process. A program that trains between two
 * lines of its own has one thread instead. A session stands between them: it starts the ranks, and
 * hands them one order after the other.
 *
 *     ls_session_new
 *     ls_session_ask(session, "open", "{\"keys\": {\"train\": {\"steps\": 3}}, ...}", ...)
 *     ls_session_wait ... until it is over;  ls_session_answer, ls_session_array
 *     ls_session_ask(session, "step", "{}", NULL, 0, ...);  ls_session_wait ...
 *     ls_session_ask(session, "close", ...);  ls_session_free
 *
 * An order is a verb, a JSON object of options, and arrays. Its answer is a JSON object, and
 * arrays. So a binding mirrors two structs, and a new verb or option changes no binary interface.
 *
 * Asking returns at once; waiting returns now and then, so that the caller sees its signals, and
 * hears of events (a line for the log, a checkpoint) in its own thread. One order is under way at a
 * time. Ranks are threads of this process; where an MPI launcher started it they are the job's
 * processes, each with a session, which ask the same in the same order (Collective).
 *
 * Processes of a job check an order together: what one of them refuses, all do, and so if they ask
 * different things. A caller that refuses a call by itself, where the others ask, asks with the
 * option "refused", the text of its error.
 *
 * A failed order leaves the ranks as they were where all of them failed alike: what was wrong with
 * the order. Otherwise (LS_ECOMM, or memory that one rank did not get) the ranks end, and each
 * order to them, "close" too, fails with that error until something is opened. If one of them does
 * not return (LS_CAUSE_GIVEN_UP) its thread goes on: arrays of that order stay borrowed for ever,
 * the session takes no further order, and ls_session_free gives back none of its memory. One that
 * "verify", "diff" or "audit" gave up uses nothing of the session, which takes the next order.
 *
 * Verbs, with their options; arrays in brackets. `?` marks what may be left out.
 *
 *   without ranks
 *     configure     config? keys? -> yaml, ranks: reads and resolves, starts nothing
 *     plan          config? keys? cluster? goal? top? accelerators? tokens? within_days? seconds?
 *                   layout? draw?
 *                   -> plans: [{keys, forecast, value, reason?}], yaml, svg?, counts: the best
 *                   layouts (lockstep/planner/search.h); layout: of the configuration's own
 *     layout        config? keys? check? draw?  -> ranks, axes, groups, stages, pp_ranks (memory
 *                   and bytes sent), schedule, bubble, here, proof?, schedule_svg? memory_svg?
 *     verify        config? keys? layouts? ranks? steps? seed?  -> equal, hash, layouts, and an
 *                   event "layout" for each (lockstep/compare/verify.h)
 *     diff          a, b, force? rerun?  -> step, loss, hash, tensor? (lockstep/compare.h)
 *     audit         run, first? last? whole? keys?  -> equal, step (lockstep/compare/audit.h);
 *                   first alone: that step; last needs first, and whole is without both
 *     convert       project, file | text, ranks? allow_loss? preset? keys?  -> yaml, items
 *     import        from, out, keys?  -> family, parameters: a run of another program's model
 *     report        runs, out?  -> html?;  plot  runs, log?  -> svg: of losses
 *     prepare       inputs, output, tokenizer, validation? records? json_key? chat_template?
 *                   skip_bad? special_tokens? append_eod? workers?  -> train, valid, ...
 *   which start ranks
 *     open          config? keys?      a run (lockstep/train.h): FILE.yaml, and keys over it
 *     open_model    path, keys? which? quantize?  a finished run, or another program's model
 *                   -> what "describe" gives
 *   of a run
 *     step          [inputs, targets, weights?]? sum?   one step, on that batch (struct
 *                   ls_given_batch) or on one of data.train; after "backward" the update
 *                   -> the step's report, ended
 *     backward      [inputs, targets, weights?, entropy_weights?] sum? temperature?   its gradient
 *                   waits for "step" -> its report, [logprobs, entropies?];  discard: it is
 *                   given up
 *     hash -> hash;  save -> step;  evaluate -> loss, bits_per_byte, sequences, tokens
 *     load          from      weights of a model or a run, into this one
 *     tensor_set    name, kind? state? [value]
 *   of a run and of a model
 *     describe      -> step, steps, ended, out, ranks, batch, sequence, vocabulary, context, ...
 *     parameters    -> parameters: [{name, shape, dtype, trained, placement, states,
 *                   state_dtype}]
 *     tensor        name, kind? state?, how: "full" (a copy), "local" (of this process's first
 *                   rank), "view" (no copy: the memory itself, where a rank has all of it)
 *                   -> [value], rank
 *     generate      prompts | [ids, lengths], samples? max_tokens? temperature? top_k? top_p? seed?
 *                   stop? ends? batch? special_tokens? truncate? scaled? -> texts, finish,
 *                   [ids, lengths, logprobs, prompt_lengths]; a prompt is a text, ids, or a record
 *                   of a file of prompts
 *     logprobs      [ids, lengths] temperature? entropy? -> [logprobs, entropy?]
 *     score         requests, truncate?  -> scores: [{loglikelihood, greedy, tokens}], of objects
 *                   as lockstep/infer/requests.h reads them
 *     encode        texts, special_tokens? around? (as special_tokens, if it is not given) -> ids
 *     decode        ids -> texts
 *     export        out, format? dtype?    a model's files, as lockstep/interop.h writes them
 *     share         [value]                of rank 0, to all processes -> [value]
 *   which ends ranks
 *     close         saves what a run's steps have made -> step
 *
 * Everything here is Local, but for what the verbs do. */
#ifndef LOCKSTEP_SESSION_H
#define LOCKSTEP_SESSION_H

#include <lockstep/base.h>

LS_C_BEGIN

struct ls_session;

/* Values in memory, dense and row-major. */
enum { LS_ARRAY_DIMS_MAX = 8 };
struct ls_array {
    const char *name;  /* "tokens" */
    const char *dtype; /* "f4", "f2", "bf16", "f8", "i1", "i4", "i8", "u1", "u2", ... */
    int dims;
    int64_t shape[LS_ARRAY_DIMS_MAX];
    void *data;
};

/* LS_ENOMEM. */
int ls_session_new(struct ls_session **out, struct ls_error *error);
/* Ends the ranks without saving, where "close" did not. An order without ranks (plan, audit, ...)
 * goes on if it is under way, and nobody hears of it. NULL is allowed. */
void ls_session_free(struct ls_session *session);

/* Hands an order to the ranks. options: a JSON object, "" or NULL for none; arrays are borrowed
 * until the order is over. LS_EINVAL: there is no such verb or option, it cannot be asked now (the
 * text says why: another order is under way, nothing is open, the process is a fork of the one that
 * has the ranks), or an array has a wrong name, type or shape. */
int ls_session_ask(struct ls_session *session, const char *verb, const char *options,
                   const struct ls_array *arrays, int count, struct ls_error *error);

/* What ls_session_wait returns beside a status, which means that the order is over. */
enum ls_session_turn {
    LS_SESSION_WAITS = 1, /* seconds have passed */
    LS_SESSION_EVENT = 2, /* *event: a JSON object, valid until the next call */
};
/* {"event": "log", "level": "warning", "text": ...}, "started", "evaluated", "sampled", "saved",
 * "idle", "meter": what struct ls_run_hooks and ls_meter tell. event may be NULL: events are
 * dropped. Without an order under way: what the last one came to. */
int ls_session_wait(struct ls_session *session, double seconds, const char **event,
                    struct ls_error *error);
/* Asks, and waits until it is over; events are dropped. */
int ls_session_call(struct ls_session *session, const char *verb, const char *options,
                    const struct ls_array *arrays, int count, struct ls_error *error);
/* The step under way, or the next one, is the run's last, as after SIGTERM. From any thread, and
 * from a signal handler. */
void ls_session_stop(struct ls_session *session);
/* "generate", "logprobs", "score" and "evaluate" under way end at the next token or batch with
 * LS_ESTOPPED, in all processes, and what is open stays as it was; other orders are done. From any
 * thread, and from a signal handler. */
void ls_session_interrupt(struct ls_session *session);

/* Of the last order that is over; valid until the next one is asked. "{}" if there is none. */
const char *ls_session_answer(struct ls_session *session);
/* What the answer of "step" and "backward" says, without JSON. */
struct ls_session_report {
    int64_t step, samples, tokens, sequences;
    double loss, grad_norm, loss_scale, lr, step_s, tokens_per_s, peak_share;
    double weight;   /* that the loss was divided by: of a weighted mean; else NAN */
    int64_t counted; /* targets that count, if not all do; else 0 */
    bool skipped, ended;
    char hash[33]; /* "": the step has none */
};
/* False if the last order reported none, or is under way, and in a fork. From any thread. */
bool ls_session_report(struct ls_session *session, struct ls_session_report *out);
/* False if it has none of that name. */
bool ls_session_array(struct ls_session *session, const char *name, struct ls_array *out);
/* The pointer of one "view" of that tensor is not in use any more. While one is, and once more
 * after the last, the next order looks whether it was written to, and makes that known to all
 * ranks. */
void ls_session_unview(struct ls_session *session, const char *tensor);

/* Of a process that an MPI launcher started, before it exits: ends MPI. Collective. */
void ls_session_leave(void);
/* Of such a process, if an error ends what it does with the others: they learn of it, with that
 * text, in what they wait for. True if all of them were ended by an error, and are whole, so that
 * they may close together what is open. */
bool ls_session_part(const char *why, bool whole);

LS_C_END
#endif
