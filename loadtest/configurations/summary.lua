-- Prints the totals of a wrk run in one line that a program can read.
done = function(summary)
    local errors = summary.errors
    io.write(string.format(
        "summary requests=%d bytes=%d microseconds=%d connect=%d read=%d write=%d status=%d timeout=%d\n",
        summary.requests, summary.bytes, summary.duration,
        errors.connect, errors.read, errors.write, errors.status, errors.timeout))
end
