/* lockstep generate: what a finished run makes of a prompt, or of a file of prompts. */
#include "conversation.h"
#include "finished.h"
#include "lines.h"

#include <lockstep/base/words.h>
#include <lockstep/interop.h>

#include <stdlib.h>
#include <string.h>

enum { BATCH = 16, TOKENS = 128, ANSWER_TOKENS = 1024 };

/* What was asked. */
struct asked {
    const char *prompt, *prompts, *output, *ends;
    const char *stop;
    bool logprobs, truncate, chat;
    const char *chat_template, *template_date, *system;
    struct ls_encode_options encode;
    int64_t tokens, samples, batch, cache_tokens, seed;
    struct ls_sampling sampling;
    bool temperature_given, top_k_given, top_p_given, tokens_given;
    const char *path;
    bool foreign; /* path is a model's folder, of other programs; otherwise a run */
};

/* One rank's view of it; what is written is rank 0's. */
struct generating {
    const struct asked *asked;
    struct ls_sampling sampling;
    int64_t tokens, length; /* generated at most; with the prompt, 0: tokens says */
    struct ls_finished *finished;
    struct ls_text_requests prompts;
    struct cmd_lines lines;
    struct cmd_text text;      /* of a single prompt, as it comes */
    struct ls_generated *kept; /* [prompts.count, samples]: texts that ended before one that
                                * stands before them */
    struct ls_chat *chat;      /* --chat; NULL: texts */
    struct conversation conversation;
    char *answer; /* [answer_bytes]: what was drawn last, of a conversation by turns */
    size_t answer_bytes;
    enum ls_finish finish; /* of it */
    int64_t next;          /* text to be written */
    int32_t ends[LS_ENDS_MAX];
    int end_count;
};

/* ---- texts as they come ---------------------------------------------------------------------- */

static void on_piece(void *user, const char *bytes, size_t count)
{
    struct generating *g = user;
    cmd_text_put(&g->text, bytes, count);
}

static int64_t texts_count(const struct generating *g)
{
    return g->prompts.count * g->asked->samples;
}

/* ---- texts in order -------------------------------------------------------------------------- */

static int text_write(struct generating *g, int64_t number, const struct ls_generated *text,
                      struct ls_error *error)
{
    int64_t samples = g->asked->samples;
    struct cmd_lines *lines = &g->lines;
    cmd_lines_begin(lines);
    cmd_lines_int(lines, "index", number / samples);
    if (samples > 1)
        cmd_lines_int(lines, "sample", number % samples);
    if (ls_finished_tokenizer(g->finished))
        cmd_lines_text(lines, "text", text->text, text->bytes);
    const char *finish = ls_finish_name(text->finish);
    cmd_lines_text(lines, "finish", finish, strlen(finish));
    cmd_lines_int(lines, "prompt_tokens", text->prompt_count);
    cmd_lines_ids(lines, "tokens", text->ids, text->count);
    if (text->logprobs)
        cmd_lines_logprobs(lines, text->logprobs, 1, text->count);
    return cmd_lines_end(lines, error);
}

static int tokens_write(struct generating *g, const struct ls_generated *text,
                        struct ls_error *error)
{
    int status = LS_OK;
    for (int64_t i = 0; i < text->count && !status; i++) {
        cmd_lines_begin(&g->lines);
        cmd_lines_int(&g->lines, "position", i);
        cmd_lines_token(&g->lines, ls_finished_tokenizer(g->finished), text->ids[i], i > 0,
                        text->logprobs[i]);
        status = cmd_lines_end(&g->lines, error);
    }
    return status;
}

static int on_done(void *user, int64_t prompt, int64_t sample, const struct ls_generated *text,
                   struct ls_error *error)
{
    struct generating *g = user;
    int status = ls_generated_copy(&g->kept[prompt * g->asked->samples + sample], text, error);
    while (g->next < texts_count(g) && g->kept[g->next].ids && !status) {
        struct ls_generated *next = &g->kept[g->next];
        status =
            g->asked->prompts ? text_write(g, g->next, next, error) : tokens_write(g, next, error);
        ls_generated_release(next);
        g->next++;
    }
    return status;
}

/* ---- answers --------------------------------------------------------------------------------- */

static int on_answer(void *user, int64_t prompt, int64_t sample, const struct ls_generated *text,
                     struct ls_error *error)
{
    struct generating *g = user;
    (void)prompt;
    (void)sample;
    g->finish = text->finish;
    g->answer_bytes = text->bytes;
    g->answer = malloc(text->bytes + 1);
    if (!g->answer)
        return ls_no_memory(error, "for an answer");
    memcpy(g->answer, text->text, text->bytes);
    g->answer[text->bytes] = '\0';
    return LS_OK;
}

/* ---- what to do ------------------------------------------------------------------------------ */

/* Those that the model's files name, or what ends a document or a turn. A run may have learned to
 * end texts otherwise than the model that it began from. */
static void ends_take(struct generating *g, struct ls_generation_defaults *there)
{
    const struct ls_tokenizer *tokenizer = ls_finished_tokenizer(g->finished);
    bool own = g->asked->foreign && there->end_count > 0;
    if (tokenizer && !own)
        ls_generation_ends_add(there, ls_tokenizer_eod(tokenizer));
    if (tokenizer && !own && g->asked->chat)
        ls_generation_ends_add(there, ls_tokenizer_eos(tokenizer));
    memcpy(g->ends, there->ends, sizeof there->ends);
    g->end_count = there->end_count;
}

/* Collective: what the model's files say, unless the command line does. */
static int defaults_take(struct generating *g, struct ls_comm *world, struct ls_error *error)
{
    const struct asked *asked = g->asked;
    const bool first = ls_comm_rank(world) == 0;
    struct ls_generation_defaults there;
    g->sampling = asked->sampling;
    g->tokens = asked->tokens;
    int status = ls_generation_defaults_share(asked->path, ls_finished_model(g->finished)->vocab,
                                              world, &there, error);
    if (status)
        return status;
    if (there.sampled && !asked->temperature_given)
        g->sampling.temperature = there.sampling.temperature;
    if (there.sampled && !asked->top_k_given)
        g->sampling.top_k = there.sampling.top_k;
    if (there.sampled && !asked->top_p_given)
        g->sampling.top_p = there.sampling.top_p;
    if (first && there.sampled)
        fprintf(
            stderr,
            "lockstep generate: temperature %g, top-k %lld, top-p %g: generation_config.json and "
            "the options given\n",
            (double)g->sampling.temperature, (long long)g->sampling.top_k,
            (double)g->sampling.top_p);
    if (there.tokens && !asked->tokens_given)
        g->tokens = there.tokens;
    if (!asked->tokens_given)
        g->length = there.length;
    if (first && !asked->tokens_given && (there.tokens || there.length))
        fprintf(stderr,
                "lockstep generate: at most %lld tokens%s: generation_config.json; --tokens says "
                "otherwise\n",
                (long long)(there.tokens ? there.tokens : there.length),
                there.tokens ? "" : " with the prompt");
    if (first && there.unsupported[0])
        fprintf(stderr,
                "lockstep generate: generation_config.json: %s: not supported, and not applied\n",
                there.unsupported);
    if (!asked->ends)
        ends_take(g, &there);
    return LS_OK;
}

/* "5,17", "none". */
static int ends_read(struct generating *g, struct ls_error *error)
{
    const char *text = g->asked->ends;
    int64_t vocabulary = ls_finished_model(g->finished)->vocab;
    for (const char *at = text; text && strcmp(text, "none") && *at;) {
        char *end;
        long id = strtol(at, &end, 10);
        if (end == at || (*end && *end != ',') || id < 0 || id >= vocabulary ||
            g->end_count == LS_ENDS_MAX)
            return ls_error_set(error, LS_ECONFIG,
                                "--eos = %.100s: expected token ids from 0 to %ld with commas "
                                "between them, %d at most, or none",
                                text, (long)vocabulary - 1, LS_ENDS_MAX);
        g->ends[g->end_count++] = (int32_t)id;
        at = end + (*end == ',');
    }
    return LS_OK;
}

/* Of a single text. */
static const char *prompt_of(const struct asked *asked)
{
    return asked->prompt && asked->prompt[0] ? asked->prompt : "\n";
}

static struct ls_text_reader reader_of(const struct generating *g)
{
    return (struct ls_text_reader){.tokenizer = ls_finished_tokenizer(g->finished),
                                   .vocabulary = ls_finished_model(g->finished)->vocab,
                                   .encode = g->asked->encode,
                                   .chat = g->chat};
}

/* If --tokens is not given, it takes at most half of the room: the other half is the prompt's. */
static int prompts_cut(struct generating *g, bool first, struct ls_error *error)
{
    const char *file = g->asked->prompts;
    int64_t context = ls_finished_model(g->finished)->context, added = g->tokens, cut;
    int64_t room = g->length ? ls_min(g->length - 1, context) : context;
    if (!g->asked->tokens_given)
        added = context - room + ls_max(ls_min(g->tokens, room / 2), 1);
    int status = ls_prompts_truncate(&g->prompts, context, added, &cut, error);
    if (status && file)
        ls_error_prefix(error, "%.300s", file);
    if (!status && first && cut)
        fprintf(stderr, "lockstep generate: --truncate left out the first tokens of %s\n",
                ls_counted(cut, "prompt").text);
    return status;
}

/* How many tokens each prompt may get. */
static int prompts_limit(struct generating *g, bool first, struct ls_error *error)
{
    const char *file = g->asked->prompts;
    int status = g->asked->truncate ? prompts_cut(g, first, error) : LS_OK;
    if (status)
        return status;
    for (int64_t i = 0; i < g->prompts.count && g->length; i++) {
        struct ls_text_request *request = &g->prompts.list[i];
        int64_t left = g->length - request->tokens.count;
        if (request->tokens_max)
            continue;
        if (left < 1)
            return ls_error_set(error, LS_EDATA,
                                "%s%s%s has %lld tokens, and generation_config.json has "
                                "max_length = %lld: expected a shorter prompt, or --tokens N",
                                file ? file : "", file ? ": " : "",
                                ls_request_name(&g->prompts, i).text,
                                (long long)request->tokens.count, (long long)g->length);
        request->tokens_max = left;
    }
    return LS_OK;
}

/* A single prompt needs a tokenizer, which the library tells. */
static int prompts_read(struct generating *g, bool first, struct ls_error *error)
{
    const struct asked *asked = g->asked;
    const struct ls_text_reader reader = reader_of(g);
    int status = LS_OK;
    if (asked->prompts)
        status = ls_requests_read(asked->prompts, LS_PROMPTS, &reader, &g->prompts, error);
    else
        status = ls_prompt_encode(prompt_of(asked), &reader, &g->prompts, error);
    if (!status)
        status = prompts_limit(g, first, error);
    g->kept = calloc((size_t)texts_count(g) + 1, sizeof *g->kept);
    if (!status && !g->kept)
        status = ls_no_memory(error, "for %ld texts", (long)texts_count(g));
    return status;
}

static void report_print(const struct ls_generation_report *report)
{
    fprintf(stderr,
            "lockstep generate: %s read, %ld written in %.2f s: %.1f tokens/s; %ld at a time, keys "
            "and values of %ld tokens: %s",
            ls_counted(report->read, "token").text, (long)report->written, report->seconds,
            (double)report->written / report->seconds, (long)report->batch,
            (long)(report->blocks * LS_ATTENTION_BLOCK), ls_bytes((double)report->bytes).text);
    if (report->put_back)
        fprintf(stderr, "; texts put back: %ld", (long)report->put_back);
    fputc('\n', stderr);
}

/* A single prompt is shown as it comes; lines are written if there are several, or more than
 * text. */
static int generate(struct generating *g, bool first, struct ls_error *error)
{
    const struct asked *asked = g->asked;
    bool lines = asked->prompts || asked->logprobs, by_turns = g->conversation.messages;
    struct ls_generation_report report;
    struct ls_generation generation = {.prompts = &g->prompts,
                                       .tokens = g->tokens,
                                       .sampling = g->sampling,
                                       .seed = (uint64_t)asked->seed,
                                       .samples = asked->samples,
                                       .batch = asked->batch,
                                       .cache_tokens = asked->cache_tokens,
                                       .ends = g->ends,
                                       .end_count = g->end_count,
                                       .stops = &asked->stop,
                                       .stop_count = asked->stop ? 1 : 0,
                                       .logprobs = asked->logprobs,
                                       .slides = !lines && !by_turns,
                                       .piece = lines ? NULL : on_piece,
                                       .echo = lines || by_turns ? NULL : prompt_of(asked),
                                       .done = lines      ? on_done
                                               : by_turns ? on_answer
                                                          : NULL,
                                       .user = g};
    if (first && !lines)
        cmd_text_begin(&g->text);
    int status = ls_runner_continue(ls_finished_runner(g->finished), &generation, &report, error);
    if (status == LS_EDATA && asked->prompts)
        ls_error_prefix(error, "%.300s", asked->prompts);
    if (first && !lines) {
        cmd_text_end(&g->text);
        if (!status)
            putchar('\n');
    }
    if (first && !status && asked->prompts)
        report_print(&report);
    return status;
}

/* ---- turns ----------------------------------------------------------------------------------- */

static void answer_tell(const struct generating *g)
{
    int64_t most = g->length ? g->prompts.list->tokens_max : g->tokens;
    fflush(stdout); /* the answer comes first */
    if (g->finish == LS_FINISH_LENGTH)
        fprintf(stderr, "lockstep generate: the answer was cut after %ld tokens (--tokens)\n",
                (long)most);
    if (g->finish == LS_FINISH_CONTEXT)
        fprintf(stderr,
                "lockstep generate: the answer was cut: the model's context of %ld is full\n",
                (long)ls_finished_model(g->finished)->context);
}

/* What the user says, and the answer, which joins the conversation. */
static int turn(struct generating *g, struct ls_comm *world, const char *said, size_t bytes,
                struct ls_error *error)
{
    const struct ls_text_reader reader = reader_of(g);
    bool first = ls_comm_rank(world) == 0;
    int status = conversation_add(&g->conversation, "user", said, bytes, error);
    if (!status)
        status = conversation_encode(&g->conversation, &reader, &g->prompts, error);
    if (!status)
        status = prompts_limit(g, first, error);
    status = ls_comm_agree(world, status, error);
    if (!status)
        status = generate(g, first, error);
    if (!status && first)
        answer_tell(g);
    ls_requests_release(&g->prompts);
    if (!status)
        status = text_share(world, &g->answer, &g->answer_bytes, error);
    if (!status)
        status = conversation_add(&g->conversation, "assistant", g->answer, g->answer_bytes, error);
    free(g->answer);
    g->answer = NULL;
    return status;
}

/* One turn of --prompt, or those of standard input. */
static int turns(struct generating *g, struct ls_comm *world, struct ls_error *error)
{
    const struct asked *asked = g->asked;
    int status = conversation_init(&g->conversation, error);
    if (!status && asked->system)
        status = conversation_add(&g->conversation, "system", asked->system, strlen(asked->system),
                                  error);
    status = ls_comm_agree(world, status, error);
    if (!status && asked->prompt)
        return turn(g, world, asked->prompt, strlen(asked->prompt), error);
    for (bool more = true; more && !status;) {
        char *said = NULL;
        size_t bytes = 0;
        if (ls_comm_rank(world) == 0)
            turn_read(&said, &bytes);
        status = text_share(world, &said, &bytes, error);
        more = said != NULL;
        if (!status && more)
            status = turn(g, world, said, bytes, error);
        free(said);
    }
    return status;
}

static int generate_run(struct finished_job *job, struct ls_finished *finished,
                        struct ls_comm *world, struct ls_error *error)
{
    struct generating g = {.asked = job->user, .finished = finished};
    bool first = ls_comm_rank(world) == 0;
    int status = first ? cmd_lines_open(&g.lines, g.asked->output, error) : LS_OK;
    status = ls_comm_agree(world, status, error);
    if (!status)
        status = defaults_take(&g, world, error);
    if (!status && g.asked->chat)
        status = conversation_template(ls_finished_tokenizer(finished), g.asked->chat_template,
                                       g.asked->template_date, &g.chat, error);
    if (!status)
        status = ends_read(&g, error);
    bool by_turns = g.asked->chat && !g.asked->prompts;
    if (!status && !by_turns)
        status = prompts_read(&g, first, error);
    status = ls_comm_agree(world, status, error);
    if (!status)
        status = by_turns ? turns(&g, world, error) : generate(&g, first, error);
    if (!status && first)
        status = cmd_lines_close(&g.lines, error);
    cmd_lines_abort(&g.lines);
    for (int64_t i = 0; i < texts_count(&g) && g.kept; i++)
        ls_generated_release(&g.kept[i]);
    free(g.kept);
    free(g.answer);
    conversation_release(&g.conversation);
    ls_chat_free(g.chat);
    ls_requests_release(&g.prompts);
    return status;
}

/* ---- the command ----------------------------------------------------------------------------- */

static int chat_check(const struct asked *asked, struct ls_error *error)
{
    if (asked->logprobs && !asked->prompts)
        return ls_error_set(error, LS_ECONFIG,
                            "--logprobs with --chat: expected --prompts FILE, whose conversations "
                            "are answered in lines");
    if (asked->system && asked->prompts)
        return ls_error_set(error, LS_ECONFIG,
                            "--system and --prompts: expected the system's message in the file's "
                            "conversations");
    if (!asked->encode.special)
        return ls_error_set(error, LS_ECONFIG,
                            "--special-tokens text with --chat: the chat template writes special "
                            "tokens, which must be tokens");
    return LS_OK;
}

static int no_chat_check(const struct asked *asked, struct ls_error *error)
{
    const char *option = asked->system          ? "--system"
                         : asked->chat_template ? "--chat-template"
                         : asked->template_date ? "--template-date"
                                                : NULL;
    return option ? ls_error_set(error, LS_ECONFIG, "%s: expected --chat beside it", option)
                  : LS_OK;
}

static int asked_check(const struct asked *asked, struct ls_error *error)
{
    if (asked->prompt && asked->prompts)
        return ls_error_set(error, LS_ECONFIG, "--prompt and --prompts: expected one of them");
    if (asked->stop && !asked->stop[0])
        return ls_error_set(error, LS_ECONFIG, "--stop: expected a text that is not empty");
    if (asked->output && !asked->prompts && !asked->logprobs)
        return ls_error_set(error, LS_ECONFIG,
                            "--output: expected --prompts or --logprobs beside it");
    if (asked->samples > 1 && !asked->prompts)
        return ls_error_set(error, LS_ECONFIG, "--samples: expected --prompts FILE beside it");
    return asked->chat ? chat_check(asked, error) : no_chat_check(asked, error);
}

static int asked_read(const struct cmd_args *args, struct asked *asked, struct ls_error *error)
{
    double temperature = 0.8, top_p = 1;
    *asked = (struct asked){.prompt = cmd_args_value(args, "--prompt"),
                            .prompts = cmd_args_value(args, "--prompts"),
                            .output = cmd_args_value(args, "--output"),
                            .ends = cmd_args_value(args, "--eos"),
                            .stop = cmd_args_value(args, "--stop"),
                            .logprobs = cmd_args_given(args, "--logprobs"),
                            .truncate = cmd_args_given(args, "--truncate"),
                            .chat = cmd_args_given(args, "--chat"),
                            .chat_template = cmd_args_value(args, "--chat-template"),
                            .template_date = cmd_args_value(args, "--template-date"),
                            .system = cmd_args_value(args, "--system"),
                            .temperature_given = cmd_args_value(args, "--temperature"),
                            .top_k_given = cmd_args_value(args, "--top-k"),
                            .top_p_given = cmd_args_value(args, "--top-p"),
                            .tokens_given = cmd_args_value(args, "--tokens"),
                            .tokens = cmd_args_given(args, "--chat") ? ANSWER_TOKENS : TOKENS,
                            .samples = 1,
                            .batch = BATCH,
                            .seed = 1234};
    int status = finished_encode(args, &asked->encode, error);
    if (!status)
        status = cmd_args_int(args, "--tokens", 1, 1 << 30, &asked->tokens, error);
    if (!status)
        status = cmd_args_int(args, "--top-k", 0, INT64_MAX, &asked->sampling.top_k, error);
    if (!status)
        status = cmd_args_int(args, "--seed", 0, INT64_MAX, &asked->seed, error);
    if (!status)
        status = cmd_args_int(args, "--samples", 1, 1 << 20, &asked->samples, error);
    if (!status)
        status = cmd_args_int(args, "--batch", 1, 1 << 16, &asked->batch, error);
    if (!status)
        status = cmd_args_int(args, "--cache-tokens", 1, INT64_MAX, &asked->cache_tokens, error);
    if (!status)
        status = cmd_args_real(args, "--temperature", 0, 100, &temperature, error);
    if (!status)
        status = cmd_args_real(args, "--top-p", 0, 1, &top_p, error);
    asked->sampling.temperature = (float)temperature;
    asked->sampling.top_p = (float)top_p;
    return status ? status : asked_check(asked, error);
}

int cmd_generate(const struct cmd_args *args, struct ls_error *error)
{
    static struct finished_job job;
    struct asked asked;
    job = (struct finished_job){
        .args = args, .use = LS_TO_GENERATE, .act = generate_run, .user = &asked};
    int status = asked_read(args, &asked, error);
    if (!status)
        status = finished_words(&job, error);
    if (!status) {
        asked.path = args->word[0];
        asked.foreign = ls_model_is_foreign(asked.path);
    }
    return status ? status : finished_run(&job, error);
}
