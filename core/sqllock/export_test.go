package sqllock

var (
	Code         = code
	ParsePayload = parsePayload
	Classify     = classify
)
