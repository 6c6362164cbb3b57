# 10 threads build and drop strings of 1 to 9 KB; a few stay (mikeperham.com, "Taming Rails memory bloat").
kept = Queue.new
threads = 10.times.map do |t|
  Thread.new do
    rng = Random.new(t)
    6.times do
      rows = Array.new(1500) { 'x' * rng.rand(1000..9000) }
      kept << rows[rng.rand(rows.size)]
      kept << rows[rng.rand(rows.size)]
      Thread.pass
    end
  end
end
threads.each(&:join)
GC.start
GC.start
puts "READY"
$stdout.flush
sleep
