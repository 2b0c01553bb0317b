package interceptor

import "google.golang.org/protobuf/reflect/protoreflect"

// PolicyOf is what no caller sees by itself: the policy that an option states.
var PolicyOf = policyOf

// OnceOf is the policy of a record that an option states.
var OnceOf = onceOf

// AnswerOf reads a stored answer of the method that answers with a message, and stores it again.
func AnswerOf(output protoreflect.MessageDescriptor, stored []byte) (again []byte, failed error) {
	a, err := parseAnswer(output, stored)
	switch {
	case err != nil:
		return nil, err
	case a.status != nil:
		return statusAnswer(a.status), nil
	}
	return replyAnswer(output, a.reply), nil
}
