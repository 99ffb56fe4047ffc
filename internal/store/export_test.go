package store

// ListSteps makes List take smaller steps, so that few messages need several of each kind.
func (s *Store) ListSteps(window, probe, fetch, first int) {
	s.steps = listSteps{window: window, probe: probe, fetch: fetch, first: first}
}
