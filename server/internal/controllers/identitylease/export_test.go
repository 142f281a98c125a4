package identitylease

// CollectAt deletes the leases that have expired at a time.
var CollectAt = collect
