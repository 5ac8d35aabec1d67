/* lockstep/infer/requests.h - files of prompts, and of texts to score. Included by
 * lockstep/infer.h.
 *
 * Prompts are lines of text, or, in a file whose name ends in .jsonl, one JSON object a line:
 *
 *     {"prompt": TEXT, "max_tokens": 20, "stop": ["\n"]}      the last two may be left out
 *
 * With a chat template, they are conversations, each of which is to be answered: one JSON object a
 * line, or a single one in a file whose name ends in .json, whose members the template sees:
 *
 *     {"messages": [{"role": "user", "content": TEXT}], "tools": [...], "max_tokens": 20}
 *
 * Texts to score are one JSON object a line:
 *
 *     {"context": TEXT, "continuation": TEXT}     the continuation is scored
 *     {"text": TEXT}                              all of it is, however long it is
 *     {"tokens": [5, 17, 9], "prompt_tokens": 1}  the tokens behind the first so many are scored
 *                                                 (left out: 1), as generation writes them
 *
 * TEXT is a string, or a list of token ids where no tokenizer is to touch it. Other keys are passed
 * over. Blank lines count as lines and hold nothing.
 *
 * Context and continuation are encoded as one text, with white space at the context's end moved to
 * the continuation, so that no token ends within it. In front is what the tokenizer puts there,
 * such as bos. In place of an empty context, and before a text, stands the tokenizer's bos, or else
 * its eos, or else the token that ends a document. A string that begins with such a token itself
 * gets no second one. That is what lm-evaluation-harness asks of a model, but for one thing: before
 * a text it has bos twice if the tokenizer puts bos in front, and scores the second one. */
#ifndef LOCKSTEP_INFER_REQUESTS_H
#define LOCKSTEP_INFER_REQUESTS_H

#include <lockstep/chat.h>
#include <lockstep/data.h>

LS_C_BEGIN

struct ls_text_request {
    int64_t line;                /* in its file, from 1 */
    struct ls_token_list tokens; /* the prompt; or the whole text */
    int64_t first;               /* tokens from here on are scored; of a prompt: all its tokens */
    bool whole;                  /* {"text": ...}: it may be longer than the model's context */
    int64_t tokens_max;          /* "max_tokens"; 0: not given */
    char **stops;                /* [stop_count] */
    int stop_count;
};

struct ls_text_requests {
    struct ls_text_request *list; /* in the file's order */
    int64_t count, room;
    const char *listed; /* borrowed: errors call request i listed[i]; NULL: by its line */
    const char *alone;  /* borrowed: what they call the only one; NULL: as above */
};
/* What errors call request i: "line 3", "prompts[2]" of a list, or "the prompt". */
struct ls_request_name {
    char text[64];
};
struct ls_request_name ls_request_name(const struct ls_text_requests *requests, int64_t i);

enum ls_request_kind { LS_PROMPTS, LS_SCORES };
/* How texts become tokens. */
struct ls_text_reader {
    const struct ls_tokenizer *tokenizer; /* NULL: only ids are taken, LS_ECONFIG for text */
    int64_t vocabulary;                   /* ids must be below */
    /* transformers' is {.special = true, .around = true}. Nothing is put behind the texts of
     * LS_SCORES, and .around = false leaves an empty context's token in place. */
    struct ls_encode_options encode;
    /* Prompts are conversations. The template writes the special tokens itself, as transformers
     * has it: encode.around has no effect. NULL: they are texts. */
    const struct ls_chat *chat;
    bool listed; /* each line is an item of a caller's list, which is named as the file is */
};
/* Local. LS_EDATA names file and line; an empty file, too. On failure nothing is to be released. */
int ls_requests_read(const char *path, enum ls_request_kind kind,
                     const struct ls_text_reader *reader, struct ls_text_requests *out,
                     struct ls_error *error);
/* The same of text[bytes]; name is its file's. */
int ls_requests_parse(const char *name, const char *text, size_t bytes, enum ls_request_kind kind,
                      const struct ls_text_reader *reader, struct ls_text_requests *out,
                      struct ls_error *error);
/* A single prompt, alone "the prompt". */
int ls_prompt_encode(const char *text, const struct ls_text_reader *reader,
                     struct ls_text_requests *out, struct ls_error *error);
/* Leaves out the first tokens of prompts that do not fit a context together with what is to be
 * added to them: `tokens`, where a prompt does not say itself. *cut: how many prompts lost some.
 * LS_EDATA names a prompt of which no more than one token would stay. */
int ls_prompts_truncate(struct ls_text_requests *prompts, int64_t context, int64_t tokens,
                        int64_t *cut, struct ls_error *error);
void ls_requests_release(struct ls_text_requests *requests);
/* The tokens of a file's text, all of it. Errors as above. */
int ls_token_text_read(const char *path, const struct ls_text_reader *reader,
                       struct ls_token_list *out, struct ls_error *error);
/* The tokens of a file that has one a line, {"id": 5}, as generation and evaluation write
 * log-probabilities. Errors as above. */
int ls_token_lines_read(const char *path, int64_t vocabulary, struct ls_token_list *out,
                        struct ls_error *error);

LS_C_END
#endif
