package main

//lock:with "main"
func main() {}
