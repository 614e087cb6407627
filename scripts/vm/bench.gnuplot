# SPDX-License-Identifier: GPL-2.0
#
# gnuplot -e "name='build/bench'" bench.gnuplot: NAME.svg from NAME.dat: a row for each test and size, and a row for the heading of
# each group. The ratios to C rxe are from left to right. A row has a point for each number of queue pairs, from top to bottom.

data = name.'.dat'
head = system("head -n 1 ".data)
rows = int(word(head, 1))
set terminal svg noenhanced size 900, 120 + 24 * rows font 'sans-serif,11' background '#ffffff'
set output name.'.svg'

set title 'Ratio to C rdma_rxe (above 1: better)'
set logscale x
set xtics (0.1, 0.2, 0.5, 1, 1.4, 2, 3, 5, 10, 20, 50)
set yrange [rows - 0.5:-0.5]
set grid x y linecolor '#dddddd'
set key top right outside horizontal
set tics nomirror
set arrow from 1, graph 0 to 1, graph 1 nohead linewidth 2 linecolor '#666666'

# Only the drivers that were measured have a column; "rxe" is the line at 1.
plot data skip 1 index 0 using (NaN):1:ytic(2) notitle, \
	for [i = 2:words(head)] data skip 1 index 1 using (word(head, i) eq 'rxe' ? NaN : column(i)):1 \
	title (word(head, i) eq 'rxe' ? '' : word(head, i)) with points linetype (i - 1) pointtype (5 + 2 * (i - 2)) pointsize 0.6
