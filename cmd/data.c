/* lockstep data prepare, lockstep data inspect: parsing and printing only. */
#include "cmd.h"

#include <lockstep/data.h>

#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char usage[] =
    "usage: lockstep data prepare --input PATH... --output PREFIX --tokenizer SPEC [options]\n"
    "       lockstep data inspect STORE [--tokens N] [--decode SPEC]\n"
    "\n"
    "prepare: text to tokens. Writes PREFIX_train.bin/.idx, PREFIX_valid.bin/.idx (Megatron's\n"
    "indexed dataset) and PREFIX.tokenizer.\n"
    "  --input PATH...       files and folders: NAME.jsonl is a document a line, any other file "
    "is\n"
    "                        one document; .gz and .zst are unpacked\n"
    "  --output PREFIX       what the written files' names begin with\n"
    "  --tokenizer SPEC      byte, a directory with vocab.json and merges.txt, or\n"
    "                        VOCAB.json,MERGES.txt\n"
    "  --validation SHARE    of the documents, or of the text where there are few (default 0.1)\n"
    "  --json-keys KEY       member of a JSONL object that holds the text (default text)\n"
    "  --append-eod, --no-append-eod   end each document with the end-of-document token (default)\n"
    "  --workers N           encoding threads (default: one a core)\n"
    "\n"
    "inspect: what a token store holds. STORE is PREFIX, a file of llm.c, u16:FILE, or a list of\n"
    "these with commas between.\n"
    "  --tokens N            how many of the first tokens are shown (default 64)\n"
    "  --decode SPEC         tokenizer to show them with (default: PREFIX.tokenizer, where it "
    "is)\n";

static int fail(const struct ls_error *error, int code)
{
    fprintf(stderr, "lockstep data: %s\n", error->text);
    return ls_exit_code(code);
}

static int misuse(const char *format, const char *what)
{
    fprintf(stderr, "lockstep data: ");
    fprintf(stderr, format, what);
    fprintf(stderr, "\n\n%s", usage);
    return ls_exit_code(LS_ECONFIG);
}

static bool parse_int(const char *text, int64_t min, int64_t max, int64_t *out)
{
    char *end;
    long long value = strtoll(text, &end, 10);
    *out = value;
    return *text && !*end && value >= min && value <= max;
}

/* ---- prepare -------------------------------------------------------------------------------- */

static volatile int stop_requested;

static void request_stop(int signal_number)
{
    (void)signal_number;
    stop_requested = 1;
}

static void print_split(const char *output, const char *name, const struct ls_prepare_split *split)
{
    printf("%s_%s  %" PRId64 " documents, %" PRId64 " tokens\n", output, name, split->documents,
           split->tokens);
}

static int run_prepare(const struct ls_prepare_config *config)
{
    struct sigaction action = {.sa_handler = request_stop, .sa_flags = SA_RESETHAND};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    struct ls_prepare_report report;
    struct ls_error error = {0};
    int rc = ls_data_prepare(config, &report, &error);
    if (rc)
        return fail(&error, rc);
    print_split(config->output, "train", &report.train);
    if (report.validation.tokens > 0)
        print_split(config->output, "valid", &report.validation);
    int64_t tokens = report.train.tokens + report.validation.tokens;
    double bytes = (double)report.text_bytes;
    printf("%.0f bytes of text, %.4f tokens per byte, %.2f s, %.1f MB/s\n", bytes,
           (double)tokens / bytes, report.seconds, bytes / 1e6 / report.seconds);
    return 0;
}

static int cmd_prepare(int argc, char **argv)
{
    static const struct option options[] = {{"input", required_argument, NULL, 'i'},
                                            {"output", required_argument, NULL, 'o'},
                                            {"tokenizer", required_argument, NULL, 't'},
                                            {"validation", required_argument, NULL, 'v'},
                                            {"json-keys", required_argument, NULL, 'k'},
                                            {"append-eod", no_argument, NULL, 'e'},
                                            {"no-append-eod", no_argument, NULL, 'n'},
                                            {"workers", required_argument, NULL, 'w'},
                                            {"help", no_argument, NULL, 'h'},
                                            {0}};
    struct ls_prepare_config config = {
        .validation = 0.1, .append_eod = true, .stop = &stop_requested};
    int64_t workers = ls_max(1, ls_min(256, sysconf(_SC_NPROCESSORS_ONLN)));
    const char **inputs = calloc((size_t)argc, sizeof *inputs);
    int status = -1, option;
    char *end;
    optind = 0;
    /* '-': words that are no options come as option 1, in their place: --input A B C. */
    while (inputs && status < 0 && (option = getopt_long(argc, argv, "-:", options, NULL)) != -1) {
        switch (option) {
        case 1:
            if (config.inputs_count == 0)
                status = misuse("\"%s\" is not expected here; inputs follow --input", optarg);
            /* fall through */
        case 'i':
            inputs[config.inputs_count++] = optarg;
            break;
        case 'o':
            config.output = optarg;
            break;
        case 't':
            config.tokenizer = optarg;
            break;
        case 'v':
            config.validation = strtod(optarg, &end);
            if (!*optarg || *end || !(config.validation >= 0 && config.validation < 1))
                status = misuse("--validation %s: expected a share from 0 to below 1", optarg);
            break;
        case 'k':
            config.json_key = optarg;
            break;
        case 'e':
        case 'n':
            config.append_eod = option == 'e';
            break;
        case 'w':
            if (!parse_int(optarg, 1, 1024, &workers))
                status = misuse("--workers %s: expected 1 to 1024", optarg);
            break;
        case 'h':
            fputs(usage, stdout);
            status = 0;
            break;
        case ':':
            status = misuse("%s needs a value", argv[optind - 1]);
            break;
        default:
            status = misuse("unknown option %s", argv[optind - 1]);
        }
    }
    config.inputs = inputs;
    config.workers = (int)workers;
    if (status < 0 && (!config.inputs_count || !config.output || !config.tokenizer))
        status = misuse("%s", "prepare needs --input, --output and --tokenizer");
    if (status < 0)
        status = run_prepare(&config);
    free(inputs);
    return status;
}

/* ---- inspect -------------------------------------------------------------------------------- */

static void print_escaped(const struct ls_text *text)
{
    putchar('"');
    for (size_t i = 0; i < text->count; i++) {
        unsigned char c = (unsigned char)text->bytes[i];
        if (c == '\n')
            fputs("\\n", stdout);
        else if (c == '\t')
            fputs("\\t", stdout);
        else if (c == '"' || c == '\\')
            printf("\\%c", c);
        else if (c < 32 || c == 127)
            printf("\\x%02x", c);
        else
            putchar(c);
    }
    puts("\"");
}

static int print_first(const struct ls_token_store *store, int64_t count,
                       const struct ls_tokenizer *tokenizer, struct ls_error *error)
{
    count = ls_min(count, ls_token_store_tokens(store));
    int32_t *ids = malloc(((size_t)count + 1) * sizeof *ids);
    if (!ids)
        return ls_error_set(error, LS_ENOMEM, "no memory for %" PRId64 " tokens", count);
    int rc = ls_token_store_read(store, 0, count, INT32_MAX, ids, error);
    if (!rc && count > 0) {
        printf("  first      ");
        for (int64_t i = 0; i < count; i++)
            printf(" %d", ids[i]);
        putchar('\n');
    }
    struct ls_text text = {0};
    if (!rc && tokenizer && count > 0) {
        rc = ls_decode(tokenizer, ids, count, &text, error);
        if (!rc) {
            printf("  decoded     ");
            print_escaped(&text);
        }
    }
    ls_text_release(&text);
    free(ids);
    return rc;
}

static int largest_id(const struct ls_token_store *store, int32_t *largest, struct ls_error *error)
{
    enum { BLOCK = 1 << 14 };
    int32_t ids[BLOCK];
    *largest = -1;
    int64_t tokens = ls_token_store_tokens(store);
    for (int64_t at = 0; at < tokens; at += BLOCK) {
        int64_t count = ls_min(BLOCK, tokens - at);
        int rc = ls_token_store_read(store, at, count, INT32_MAX, ids, error);
        if (rc)
            return rc;
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
    int rc = ls_token_store_open(spec, &store, error);
    if (!rc && decode)
        rc = ls_tokenizer_new(decode, &tokenizer, error);
    else if (!rc)
        ls_tokenizer_new_for_store(spec, &tokenizer, NULL);
    for (int i = 0; !rc && i < ls_token_store_files(store); i++) {
        struct ls_token_file file = ls_token_store_file(store, i);
        printf("%s\n", file.path);
        printf("  kind        %s\n", ls_token_file_kind_name(file.kind));
        printf("  dtype       %s\n", ls_dtype_name(file.dtype));
        if (file.kind == LS_TOKENS_MEGATRON) {
            printf("  documents   %" PRId64 "\n", file.documents);
            printf("  sequences   %" PRId64 "\n", file.sequences);
        }
        printf("  tokens      %" PRId64 "\n", file.tokens);
    }
    int32_t largest = -1;
    if (!rc)
        rc = largest_id(store, &largest, error);
    if (!rc) {
        printf("  largest id  %d\n", largest);
        if (tokenizer)
            printf("  tokenizer   %s, %" PRId64 " ids\n", ls_tokenizer_name(tokenizer),
                   ls_tokenizer_vocabulary(tokenizer));
        rc = print_first(store, tokens, tokenizer, error);
    }
    ls_tokenizer_free(tokenizer);
    ls_token_store_close(store);
    return rc;
}

static bool has_index(const char *prefix, const char *suffix, char path[PATH_MAX])
{
    char index[PATH_MAX + 8];
    snprintf(path, PATH_MAX, "%s%s", prefix, suffix);
    snprintf(index, sizeof index, "%s.idx", path);
    return access(index, F_OK) == 0;
}

static int run_inspect(const char *spec, int64_t tokens, const char *decode)
{
    struct ls_error error = {0};
    char path[PATH_MAX];
    int rc = LS_OK;
    /* What prepare was told as --output names two stores. */
    if (!has_index(spec, "", path) && has_index(spec, "_train", path)) {
        rc = inspect_store(path, tokens, decode, &error);
        if (!rc && has_index(spec, "_valid", path))
            rc = inspect_store(path, tokens, decode, &error);
    } else {
        rc = inspect_store(spec, tokens, decode, &error);
    }
    return rc ? fail(&error, rc) : 0;
}

static int cmd_inspect(int argc, char **argv)
{
    static const struct option options[] = {{"tokens", required_argument, NULL, 'n'},
                                            {"decode", required_argument, NULL, 'd'},
                                            {"help", no_argument, NULL, 'h'},
                                            {0}};
    int64_t tokens = 64;
    const char *decode = NULL;
    int option;
    optind = 0;
    while ((option = getopt_long(argc, argv, ":", options, NULL)) != -1) {
        switch (option) {
        case 'n':
            if (!parse_int(optarg, 0, 1 << 24, &tokens))
                return misuse("--tokens %s: expected 0 to 16777216", optarg);
            break;
        case 'd':
            decode = optarg;
            break;
        case 'h':
            fputs(usage, stdout);
            return 0;
        case ':':
            return misuse("%s needs a value", argv[optind - 1]);
        default:
            return misuse("unknown option %s", argv[optind - 1]);
        }
    }
    if (optind != argc - 1)
        return misuse("%s", "inspect needs one STORE");
    return run_inspect(argv[optind], tokens, decode);
}

int cmd_data(int argc, char **argv)
{
    if (argc >= 2 && strcmp(argv[1], "prepare") == 0)
        return cmd_prepare(argc - 1, argv + 1);
    if (argc >= 2 && strcmp(argv[1], "inspect") == 0)
        return cmd_inspect(argc - 1, argv + 1);
    if (argc >= 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "help") == 0)) {
        fputs(usage, stdout);
        return 0;
    }
    if (argc >= 2)
        return misuse("\"%s\" is not a sub-command; expected prepare or inspect", argv[1]);
    return misuse("%s", "expected prepare or inspect");
}
