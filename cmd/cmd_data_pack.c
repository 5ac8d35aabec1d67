/* lockstep data pack: parsing and printing only. */
#include "cmd.h"
#include "stores.h"

#include <lockstep/base/meter.h>
#include <lockstep/base/words.h>
#include <lockstep/data/pack.h>

struct packing {
    int64_t tokens;
    const volatile int *stop;
};

/* The share of places without a target, in percent. */
static double padding(int64_t samples, int64_t tokens, int64_t targets)
{
    double places = (double)samples * (double)tokens;
    return 100 * (places - (double)targets) / places;
}

static int pack_one(void *user, const char *store, struct ls_error *error)
{
    const struct packing *p = user;
    struct ls_pack_report r;
    int status = ls_store_pack(store, p->tokens, p->stop, &r, error);
    ls_meter_clear();
    if (status)
        return status;
    cmd_print("%s  %s in %s of %lld tokens, %.2f %% of them padding; %s cut\n", store,
              ls_counted(r.documents, "document").text, ls_counted(r.samples, "sequence").text,
              (long long)p->tokens, padding(r.samples, p->tokens, r.targets),
              ls_counted(r.cut, "document").text);
    cmd_print("  data.packing=stream would cut %s; data.packing=documents would make %s, %.2f %% "
              "padding\n",
              ls_counted(r.stream_cut, "document").text,
              ls_counted(r.order_samples, "sequence").text,
              padding(r.order_samples, p->tokens, r.targets));
    return LS_OK;
}

int stores_pack(const char *path, int64_t tokens, const volatile int *stop, struct ls_error *error)
{
    struct packing packing = {tokens, stop};
    return stores_each(path, pack_one, &packing, error);
}

int cmd_data_pack(const struct cmd_args *args, struct ls_error *error)
{
    int64_t tokens = 0;
    if (args->words < 1 || !cmd_args_given(args, "--sequence"))
        return ls_error_set(error, LS_ECONFIG, "%s is missing (--help shows the options)",
                            args->words < 1 ? "STORE" : "--sequence T");
    int status = cmd_args_int(args, "--sequence", 1, LS_PACK_SEQUENCE_MAX, &tokens, error);
    if (status)
        return status;
    const volatile int *stop = cmd_stop_begin();
    for (int i = 0; i < args->words && !status; i++)
        status = stores_pack(args->word[i], tokens, stop, error);
    return status;
}
