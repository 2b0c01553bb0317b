package interceptor

// PolicyOf is what no caller sees by itself: the policy that an option states.
var PolicyOf = policyOf
