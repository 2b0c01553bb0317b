local read = redis.call('HMGET', key, 'o', 't', 'x')
