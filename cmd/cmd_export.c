/* lockstep export: a model as files of other programs. */
#include "cmd.h"

#include <lockstep/base/file.h>
#include <lockstep/base/words.h>
#include <lockstep/interop.h>

#include <string.h>

/* What weights become: --dtype, or --quantize. */
static int type_read(const struct cmd_args *args, int format, int *dtype, struct ls_error *error)
{
    enum { NONE, INT8 };
    static const struct ls_word types[] = {{"fp32", LS_F32}, {"bf16", LS_BF16}, {"fp16", LS_F16},
                                           {"f32", LS_F32},  {"f16", LS_F16},   {0}};
    static const struct ls_word quantizations[] = {{"none", NONE}, {"int8", INT8}, {0}};
    int quantize = NONE;
    int status = cmd_args_word(args, "--dtype", types, dtype, error);
    const char *given = cmd_args_value(args, "--dtype");
    if (status && !strcmp(given, "int8"))
        ls_error_suffix(error, "; int8 is --format gguf --quantize int8");
    if (!status)
        status = cmd_args_word(args, "--quantize", quantizations, &quantize, error);
    if (status || quantize == NONE)
        return status;
    if (format != LS_EXPORT_GGUF)
        return ls_error_set(error, LS_ECONFIG,
                            "--quantize int8: only --format gguf has int8; leave it out");
    if (given)
        return ls_error_set(error, LS_ECONFIG,
                            "--quantize int8 and --dtype %.100s: give one of the two", given);
    *dtype = LS_I8;
    return LS_OK;
}

static int options_read(const struct cmd_args *args, struct ls_export *what, struct ls_error *error)
{
    static const struct ls_word formats[] = {{"hf", LS_EXPORT_HF},
                                             {"peft", LS_EXPORT_PEFT},
                                             {"llmc", LS_EXPORT_LLMC},
                                             {"gguf", LS_EXPORT_GGUF},
                                             {0}};
    int format = LS_EXPORT_HF, dtype = LS_F32;
    int64_t megabytes = 0;
    if (args->words != 1 || !cmd_args_given(args, "--out"))
        return ls_error_set(error, LS_ECONFIG, "%s: expected %s",
                            args->words < 1   ? "the run is missing"
                            : args->words > 1 ? "one argument too many"
                                              : "--out is missing",
                            args->page->arguments);
    int status = cmd_args_word(args, "--format", formats, &format, error);
    if (!status)
        status = type_read(args, format, &dtype, error);
    if (!status)
        status = cmd_args_int(args, "--shard-mb", 1, 1 << 30, &megabytes, error);
    if (!status && format != LS_EXPORT_GGUF && ls_path_ends(cmd_args_value(args, "--out"), ".gguf"))
        status = ls_error_set(error, LS_ECONFIG,
                              "--out %s: a GGUF file: expected --format gguf beside it",
                              cmd_args_value(args, "--out"));
    what->from = args->word[0];
    what->which = cmd_args_value(args, "--step");
    what->out = cmd_args_value(args, "--out");
    what->format = (enum ls_export_format)format;
    what->dtype = (enum ls_dtype)dtype;
    what->shard_bytes = megabytes * 1000000;
    return status;
}

int cmd_export(const struct cmd_args *args, struct ls_error *error)
{
    struct ls_export what = {.log = &cmd_warnings};
    struct ls_export_report report;
    int status = options_read(args, &what, error);
    cmd_progress_begin();
    if (!status)
        status = ls_export(&what, &report, error);
    if (!status)
        cmd_print("%s  %s in %s of weights, %s\n", what.out,
                  ls_counted(report.tensors, "tensor").text, ls_counted(report.files, "file").text,
                  ls_bytes((double)report.bytes).text);
    return status;
}
