-- Schema 105: that a turn has begun is found through the turn, or through what was written of it later (`traces.py`), so
-- the commit that begins one writes to an index less.
DROP INDEX idx_events_trace;
CREATE INDEX idx_events_trace ON events(trace_id) WHERE trace_id IS NOT NULL AND kind <> 'turn.begun';
