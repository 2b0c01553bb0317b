// Package lockpb has the code of lockaround/v1/lock.proto: the option that states the
// lock of a gRPC method in its .proto file. Package interceptor says how to write it,
// how to have protoc or buf find it, and what it does.
//
// A message is read, and not made, by those who use it; package interceptor checks it.
package lockpb
