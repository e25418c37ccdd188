"""budget: what each KV head of a cache keeps, in tokens and pages, and how many bytes that takes; computed before
allocation.
"""


cdef inline int64_t pages_of(int64_t n) noexcept nogil:
    """Number of pages that n tokens take."""
    return (n + KV_PAGE - 1) // KV_PAGE

#: what goes when room is needed (policy)
POLICIES = ("recent", "quarter")


cdef int formats(str kv_type, int64_t head_dim, page_format *sealed, page_format *unsealed) except -1:
    """The page formats of a KV type.  Raises ValueError for an unknown type or an invalid head_dim."""
    cdef element_type k_type, v_type
    parse_types(kv_type, &k_type, &v_type)
    if not 0 < head_dim <= MAX_HEAD_DIM or head_dim % 4:
        raise ValueError(f"heads of {head_dim} dimensions are out of range: a multiple of 4 up to {MAX_HEAD_DIM}")
    sealed[0] = format_of(k_type, v_type, head_dim)
    unsealed[0] = format_of(open_type(k_type), open_type(v_type), head_dim)  # of open pages and sink pages
    return 0


def shapes(
    int64_t n_layer, int64_t n_kv_head, int64_t head_dim, int64_t n_ctx, str kv_type="f16", int64_t window=0,
    int64_t sinks=0, *, budgets=None, str policy="recent", int64_t spare=0, windows=None):
    """For each layer and head: (tokens seen after the sinks, sinks, pages of sinks, pages of the ring).

    The arguments are those of KVCache.  Raises ValueError for an impossible plan.
    """
    cdef page_format sealed, unsealed
    cdef int64_t total, keep, pinned, near
    formats(kv_type, head_dim, &sealed, &unsealed)
    if not (0 < n_layer <= 4096 and 0 < n_kv_head <= 4096):
        raise ValueError(f"{n_layer} layers of {n_kv_head} KV heads are out of range")
    if not 0 < n_ctx <= 1 << 30 or not 0 <= window <= 1 << 30 or not 0 <= sinks <= 1 << 20:
        raise ValueError(f"context {n_ctx}, window {window}, sinks {sinks} are out of range")
    if policy not in POLICIES or not 0 <= spare <= 1 << 20:
        raise ValueError(f"policy {policy!r}, {spare} spare pages: policies are {', '.join(POLICIES)}")
    if policy != "recent" and not window and budgets is None:
        raise ValueError(f"policy {policy!r} needs a window or budgets")
    total = window + sinks if window else n_ctx
    if budgets is None:
        kept = [total] * (n_layer * n_kv_head)
    else:
        kept = [keep for row in budgets for keep in row]
        if len(budgets) != n_layer or any(len(row) != n_kv_head for row in budgets) or min(kept) < 1:
            raise ValueError(f"budgets are tokens to keep, 1 or more, for {n_layer} layers of {n_kv_head} KV heads")
    if windows is not None and (len(windows) != n_layer or not all(0 <= near < 1 << 30 for near in windows)):
        raise ValueError(f"windows are 0 or tokens to see, for {n_layer} layers")
    found = []
    for i, wanted in enumerate(kept):
        keep = min(wanted, total)
        near = windows[i // n_kv_head] if windows is not None else 0
        if near and (window or near < n_ctx):
            keep = min(keep, near)
            found.append((keep, 0, 0, pages_of(keep - 1) + (not is_quantised(&sealed)) + spare))
            continue
        if keep == total and not window:  # everything
            pinned = pages_of(sinks)
            found.append((n_ctx, sinks, pinned, max(<int64_t>1, pages_of(n_ctx) - pinned)))
            continue
        pinned = sinks if keep > sinks else 0
        # a window of W touches at most ceil((W - 1) / 32) pages before the one that is being written
        ring = pages_of(keep - pinned - 1) + (not is_quantised(&sealed)) + spare
        found.append((keep - pinned, pinned, pages_of(pinned), ring))
    return found


def bytes_for(n_layer, n_kv_head, head_dim, n_ctx, kv_type="f16", *args, **plan):
    """The exact number of bytes of pages that a cache of this plan has room for; arguments as for ``shapes``."""
    cdef page_format sealed, unsealed
    formats(kv_type, head_dim, &sealed, &unsealed)
    return sum(
        (pinned + is_quantised(&sealed)) * unsealed.bytes + ring * sealed.bytes
        for _, _, pinned, ring in shapes(n_layer, n_kv_head, head_dim, n_ctx, kv_type, *args, **plan))
