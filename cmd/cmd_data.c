/* lockstep data prepare, lockstep data inspect: parsing and printing only. */
#include "conversation.h"
#include "lines.h"
#include "stores.h"

#include <lockstep/base/json.h>
#include <lockstep/base/meter.h>
#include <lockstep/base/words.h>
#include <lockstep/data/pack.h>

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>

/* ---- prepare -------------------------------------------------------------------------------- */

static void print_split(const char *output, const char *name, const struct ls_prepare_split *split)
{
    cmd_print("%s_%s  %s, %s", output, name, ls_counted(split->documents, "document").text,
              ls_counted(split->tokens, "token").text);
    if (split->counted < split->tokens)
        cmd_print(", %" PRId64 " of them count", split->counted);
    cmd_print("\n");
}

static enum ls_prepare_records records_of(const struct cmd_args *args)
{
    return cmd_args_given(args, "--pairs")  ? LS_RECORDS_PAIRS
           : cmd_args_given(args, "--chat") ? LS_RECORDS_CHAT
                                            : LS_RECORDS_TEXT;
}

/* What of these options contradicts the others. */
static int check_records(const struct cmd_args *args, struct ls_error *error)
{
    bool chat = cmd_args_given(args, "--chat"), pairs = cmd_args_given(args, "--pairs");
    if (chat && pairs)
        return ls_error_set(error, LS_ECONFIG, "--chat and --pairs contradict each other");
    if ((chat || pairs) && cmd_args_value(args, "--json-keys"))
        return ls_error_set(error, LS_ECONFIG, "%s; --json-keys names the key of a text",
                            chat ? "--chat reads \"messages\""
                                 : "--pairs reads \"prompt\" and \"completion\"");
    if (!chat && cmd_args_value(args, "--chat-template"))
        return ls_error_set(error, LS_ECONFIG, "--chat-template needs --chat");
    if (!chat && cmd_args_value(args, "--template-date"))
        return ls_error_set(error, LS_ECONFIG, "--template-date needs --chat");
    return LS_OK;
}

/* The template of conversations: a file's, or that which lies with the tokenizer. */
static int open_chat(const struct cmd_args *args, struct ls_prepare_config *config,
                     struct ls_chat **chat, struct ls_error *error)
{
    if (config->records != LS_RECORDS_CHAT)
        return LS_OK;
    int status = template_open(config->tokenizer, cmd_args_value(args, "--chat-template"),
                               cmd_args_value(args, "--template-date"), chat, error);
    config->chat = *chat;
    return status;
}

static int read_config(const struct cmd_args *args, struct ls_prepare_config *config,
                       struct ls_error *error)
{
    *config = (struct ls_prepare_config){.inputs = args->word,
                                         .inputs_count = args->words,
                                         .output = cmd_args_value(args, "--output"),
                                         .tokenizer = cmd_args_value(args, "--tokenizer"),
                                         .validation = 0.1,
                                         .json_key = cmd_args_value(args, "--json-keys"),
                                         .records = records_of(args),
                                         .weight_key = cmd_args_value(args, "--weights"),
                                         .around = !cmd_args_given(args, "--no-special-tokens"),
                                         .append_eod = !cmd_args_given(args, "--no-append-eod")};
    if (!config->append_eod && cmd_args_given(args, "--append-eod"))
        return ls_error_set(error, LS_ECONFIG,
                            "--append-eod and --no-append-eod contradict each other");
    if (!config->inputs_count || !config->output || !config->tokenizer)
        return ls_error_set(error, LS_ECONFIG, "%s is missing (--help shows the options)",
                            !config->inputs_count ? "--input PATH..."
                            : !config->output     ? "--output PREFIX"
                                                  : "--tokenizer SPEC");
    int status = records_skip(args, &config->skip_bad, error);
    if (!status)
        status = check_records(args, error);
    if (!status)
        status = cmd_args_real(args, "--validation", 0, 0.999999, &config->validation, error);
    return status ? status : records_workers(args, &config->workers, error);
}

/* By their names: a store that is called as the output is another one. */
static int pack_made(const struct ls_prepare_config *config, const struct ls_prepare_report *report,
                     int64_t sequence, struct ls_error *error)
{
    char store[PATH_MAX];
    snprintf(store, sizeof store, "%s_train", config->output);
    int status = stores_pack(store, sequence, config->stop, error);
    snprintf(store, sizeof store, "%s_valid", config->output);
    if (!status && report->validation.tokens > 0)
        status = stores_pack(store, sequence, config->stop, error);
    return status;
}

int cmd_data_prepare(const struct cmd_args *args, struct ls_error *error)
{
    struct ls_prepare_config config;
    struct ls_prepare_report report;
    int64_t skipped = 0, sequence = 0;
    struct ls_chat *chat = NULL;
    int status = read_config(args, &config, error);
    if (!status)
        status = cmd_args_int(args, "--pack-sequence", 1, LS_PACK_SEQUENCE_MAX, &sequence, error);
    if (!status)
        status = open_chat(args, &config, &chat, error);
    if (!status) {
        config.stop = cmd_stop_begin();
        config.skipped = records_skipped;
        config.user = &skipped;
        status = ls_data_prepare(&config, &report, error);
        ls_meter_clear();
    }
    ls_chat_free(chat);
    if (status)
        return status;
    print_split(config.output, "train", &report.train);
    if (report.validation.tokens > 0)
        print_split(config.output, "valid", &report.validation);
    if (report.skipped > 0)
        cmd_print("%s skipped: %s.skipped.txt lists %s\n",
                  ls_counted(report.skipped, "bad record").text, config.output,
                  report.skipped == 1 ? "it" : "them");
    if (report.unknown > 0)
        cmd_print("%s not in the vocabulary: unknown tokens, or left out\n",
                  ls_counted(report.unknown, "character").text);
    if (report.alike)
        cmd_print("each token weighs 1: no record has another number under \"%.100s\"\n",
                  config.weight_key);
    double tokens = (double)(report.train.tokens + report.validation.tokens);
    double bytes = (double)report.text_bytes;
    printf("%.0f bytes of text, %.4f tokens per byte, %.2f s, %.1f MB/s\n", bytes, tokens / bytes,
           report.seconds, bytes / 1e6 / report.seconds);
    return sequence ? pack_made(&config, &report, sequence, error) : LS_OK;
}

/* ---- inspect -------------------------------------------------------------------------------- */

static int print_first(const struct ls_token_store *store, int64_t count,
                       const struct ls_tokenizer *tokenizer, struct ls_error *error)
{
    count = ls_min(count, ls_token_store_tokens(store));
    int32_t *ids = malloc(((size_t)count + 1) * sizeof *ids);
    if (!ids)
        return ls_no_memory(error, "for %" PRId64 " tokens", count);
    int status = ls_token_store_read(store, 0, count, INT32_MAX, ids, error);
    if (!status && count > 0) {
        printf("  first      ");
        for (int64_t i = 0; i < count; i++)
            printf(" %d", ids[i]);
        putchar('\n');
    }
    struct ls_text text = {0};
    if (!status && tokenizer && count > 0) {
        status = ls_decode(tokenizer, ids, count, &text, error);
        if (!status) {
            printf("  decoded     ");
            ls_json_string(stdout, text.bytes, text.count);
            putchar('\n');
        }
    }
    ls_text_release(&text);
    free(ids);
    return status;
}

static int largest_id(const struct ls_token_store *store, int32_t *largest, struct ls_error *error)
{
    enum { BLOCK = 1 << 14 };
    int32_t ids[BLOCK];
    *largest = -1;
    int64_t tokens = ls_token_store_tokens(store);
    for (int64_t at = 0; at < tokens; at += BLOCK) {
        int64_t count = ls_min(BLOCK, tokens - at);
        int status = ls_token_store_read(store, at, count, INT32_MAX, ids, error);
        if (status)
            return status;
        for (int64_t i = 0; i < count; i++)
            *largest = ids[i] > *largest ? ids[i] : *largest;
    }
    return LS_OK;
}

/* decode: a tokenizer's spec, or NULL for the one that made the store, where it is known. */
static int inspect_store(const char *spec, int64_t tokens, const char *decode,
                         struct ls_error *error)
{
    struct ls_token_store *store = NULL;
    struct ls_tokenizer *tokenizer = NULL;
    struct ls_error why = {0};
    int status = ls_token_store_open(spec, &store, error);
    if (!status && decode)
        status = ls_tokenizer_new(decode, &tokenizer, error);
    else if (!status)
        ls_tokenizer_new_for_store(spec, &tokenizer, &why);
    for (int i = 0; !status && i < ls_token_store_files(store); i++) {
        struct ls_token_file file = ls_token_store_file(store, i);
        cmd_print("%s\n", file.path);
        printf("  kind        %s\n", ls_token_file_kind_name(file.kind));
        printf("  dtype       %s\n", ls_dtype_name(file.dtype));
        if (file.kind == LS_TOKENS_MEGATRON) {
            printf("  documents   %" PRId64 "\n", file.documents);
            printf("  sequences   %" PRId64 "\n", file.sequences);
        }
        printf("  tokens      %" PRId64 "\n", file.tokens);
        if (file.masked)
            printf("  that count  %" PRId64 "\n", file.counted);
        if (file.weighted)
            printf("  weights     of each token\n");
    }
    int32_t largest = -1;
    if (!status)
        status = largest_id(store, &largest, error);
    if (!status) {
        printf("  largest id  %d\n", largest);
        if (tokenizer)
            cmd_print("  tokenizer   %s, %" PRId64 " ids\n", ls_tokenizer_name(tokenizer),
                      ls_tokenizer_vocabulary(tokenizer));
        else if (why.code)
            cmd_print("  tokenizer   not read: %s\n", why.text);
        status = print_first(store, tokens, tokenizer, error);
    }
    ls_tokenizer_free(tokenizer);
    ls_token_store_close(store);
    return status;
}

/* What inspect is told beside the stores. */
struct inspection {
    int64_t tokens;
    const char *decode;
};

static int inspect_one(void *user, const char *store, struct ls_error *error)
{
    const struct inspection *inspection = user;
    return inspect_store(store, inspection->tokens, inspection->decode, error);
}

int cmd_data_inspect(const struct cmd_args *args, struct ls_error *error)
{
    struct inspection inspection = {64, cmd_args_value(args, "--decode")};
    int status = cmd_args_int(args, "--tokens", 0, 1 << 24, &inspection.tokens, error);
    if (!status && args->words < 1)
        status = ls_error_set(error, LS_ECONFIG, "PATH is missing: the token store to look at");
    return status ? status : stores_each(args->word[0], inspect_one, &inspection, error);
}
